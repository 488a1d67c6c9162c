package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

var readTests = []contractTest{
	{name: "a space without commits is at sequence 0 and holds nothing", run: func(s *suite) {
		snapshot := s.snapshot(s.space(1))
		if sequence := snapshot.Sequence(); sequence != 0 {
			s.Fatalf("at sequence %d", sequence)
		}
		s.wantNone(snapshot, "a")
		s.wantKeys(snapshot, engine.Range{}, false)
		s.wantKeys(snapshot, engine.Range{}, true)
	}},

	{name: "an entry carries the commit that wrote it last", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a", "b")
		s.commit(space, func(c engine.Commit) { c.Set([]byte("b"), []byte("new")) })
		s.commit(space, func(c engine.Commit) { c.Set([]byte("b"), []byte("new")) })
		snapshot := s.snapshot(space)
		s.want(snapshot, "a", "a", 1)
		s.want(snapshot, "b", "new", 3)
		for i, row := range s.scan(snapshot, engine.Range{}, false) {
			if want := []engine.Sequence{1, 3}[i]; row.sequence != want {
				s.Fatalf("a scan shows %v, want commit %d", row, want)
			}
		}
	}},

	{name: "an empty value is not a missing one", run: func(s *suite) {
		space := s.space(1)
		s.commit(space, func(c engine.Commit) { c.Set([]byte("a"), nil) })
		entry := s.get(s.snapshot(space), "a")
		if entry.Value == nil || len(entry.Value) != 0 || entry.Sequence != 1 {
			s.Fatalf("got %#v, want an empty value of commit 1", entry)
		}
		s.wantKeys(s.snapshot(space), engine.Range{}, false, "a")
	}},

	{name: "GetMany answers in the order of the keys, missing and repeated ones too", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a", "b", "c")
		entries, err := s.snapshot(space).GetMany(ctx, [][]byte{[]byte("c"), []byte("x"), []byte("a"), []byte("c")})
		s.noError(err)
		var got []string
		for _, entry := range entries {
			got = append(got, fmt.Sprintf("%s@%d", entry.Value, entry.Sequence))
		}
		if want := "[c@1 @0 a@1 c@1]"; fmt.Sprint(got) != want {
			s.Fatalf("got %v, want %s", got, want)
		}
		if entries[1].Value != nil {
			s.Fatalf("a missing key has the value %q", entries[1].Value)
		}
		none, err := s.snapshot(space).GetMany(ctx, nil)
		s.noError(err)
		if len(none) != 0 {
			s.Fatalf("no keys have the entries %v", none)
		}
	}},

	{name: "keys are compared as bytes, and a range is from From to before To", run: func(s *suite) {
		space := s.space(1)
		keys := []string{"", "\x00", "\x00\x00", "a", "a\x00", "aa", "ab", "b", "\xfe\xff", "\xff", "\xff\x00", "\xff\xff\xff\xff\xff"}
		shuffled := []int{7, 0, 11, 3, 9, 1, 5, 8, 2, 10, 4, 6}
		s.commit(space, func(c engine.Commit) {
			for _, i := range shuffled {
				c.Set([]byte(keys[i]), []byte(keys[i]))
			}
		})
		snapshot := s.snapshot(space)
		ends := append([]string{"a\x01", "zz"}, keys...)
		for _, from := range ends {
			s.checkRange(snapshot, keys, engine.Range{From: []byte(from)})
			for _, to := range ends {
				s.checkRange(snapshot, keys, engine.Range{From: []byte(from), To: []byte(to)})
			}
		}
		for _, to := range ends {
			s.checkRange(snapshot, keys, engine.Range{To: []byte(to)})
		}
		s.checkRange(snapshot, keys, engine.Range{})
		s.checkRange(snapshot, keys, engine.PrefixRange([]byte("a")))
		s.wantKeys(snapshot, engine.PrefixRange([]byte("\xff")), true, "\xff\xff\xff\xff\xff", "\xff\x00", "\xff")
	}},

	{name: "the limit of a scan is a hint and bounds nothing", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a", "b", "c")
		for _, limit := range []int{0, 1, 2, 3, 1000} {
			for _, reverse := range []bool{false, true} {
				iterator := s.snapshot(space).Scan(ctx, engine.Range{}, reverse, limit)
				count := 0
				for iterator.Next() {
					count++
				}
				s.noError(iterator.Close())
				if count != 3 {
					s.Fatalf("limit %d, reverse %v: %d entries, want 3", limit, reverse, count)
				}
			}
		}
	}},

	{name: "an iterator ends for good, and may be closed before its end", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a", "b")
		snapshot := s.snapshot(space)
		iterator := snapshot.Scan(ctx, engine.Range{}, false, 0)
		if !iterator.Next() || string(iterator.Key()) != "a" || string(iterator.Value()) != "a" {
			s.Fatal("the first entry is not a")
		}
		s.noError(iterator.Close())
		iterator = snapshot.Scan(ctx, engine.Range{}, false, 0)
		for iterator.Next() {
		}
		if iterator.Next() {
			s.Fatal("Next after the end")
		}
		s.noError(iterator.Close())
	}},

	{name: "a scan of many entries shows each once", run: func(s *suite) {
		space := s.space(1)
		const many = 5000
		for from := 0; from < many; from += 1000 {
			s.commit(space, func(c engine.Commit) {
				for i := from; i < from+1000; i++ {
					c.Set(key("%05d", i), bytes.Repeat([]byte{byte(i)}, i%200))
				}
			})
		}
		for _, reverse := range []bool{false, true} {
			rows := s.scan(s.snapshot(space), engine.Range{}, reverse)
			if len(rows) != many {
				s.Fatalf("%d entries, want %d", len(rows), many)
			}
			for i, row := range rows {
				number := i
				if reverse {
					number = many - 1 - i
				}
				if row.key != string(key("%05d", number)) || len(row.value) != number%200 || row.sequence != engine.Sequence(number/1000+1) {
					s.Fatalf("entry %d is %.40v", i, row)
				}
			}
		}
	}},

	{name: "a value of a mebibyte comes back as it was", run: func(s *suite) {
		space := s.space(1)
		value := make([]byte, 1<<20)
		for i := range value {
			value[i] = byte(i * i >> 7)
		}
		s.commit(space, func(c engine.Commit) { c.Set([]byte("a"), value) })
		if entry := s.get(s.snapshot(space), "a"); !bytes.Equal(entry.Value, value) {
			s.Fatalf("a value of %d other bytes", len(entry.Value))
		}
	}},

	{name: "a snapshot does not see what is committed later", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a", "b", "c", "d")
		before := s.snapshot(space)
		open := before.Scan(ctx, engine.Range{}, false, 0)
		if !open.Next() {
			s.Fatal("nothing to scan")
		}
		s.commit(space, func(c engine.Commit) {
			c.Set([]byte("a"), []byte("new"))
			c.Set([]byte("bb"), nil)
			c.Delete([]byte("b"))
			c.DeleteRange(engine.Range{From: []byte("c")})
		})
		if before.Sequence() != 1 {
			s.Fatalf("the snapshot moved to %d", before.Sequence())
		}
		s.want(before, "a", "a", 1)
		s.want(before, "b", "b", 1)
		s.wantKeys(before, engine.Range{}, false, "a", "b", "c", "d")
		s.wantKeys(before, engine.Range{}, true, "d", "c", "b", "a")
		rest := 0
		for open.Next() {
			rest++
		}
		s.noError(open.Close())
		if rest != 3 {
			s.Fatalf("an open iterator showed %d more entries, want 3", rest)
		}
		after := s.snapshot(space)
		if after.Sequence() != 2 {
			s.Fatalf("the next snapshot is of %d, want 2", after.Sequence())
		}
		s.want(after, "a", "new", 2)
		s.wantKeys(after, engine.Range{}, false, "a", "bb")
	}},

	{name: "a snapshot is read by many goroutines, and released more than once", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a", "b", "c")
		snapshot := s.snapshot(space)
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() {
				for range 50 {
					rows, err := scan(snapshot, engine.Range{}, false)
					if err != nil || len(rows) != 3 {
						s.Errorf("scan: %v, %v", rows, err)
					}
					entry, err := snapshot.Get(ctx, []byte("b"))
					if err != nil || string(entry.Value) != "b" {
						s.Errorf("get: %q, %v", entry.Value, err)
					}
				}
			})
		}
		readers.Wait()
		snapshot.Release()
		snapshot.Release()
		s.want(s.snapshot(space), "a", "a", 1)
	}},

	{name: "the caller owns what Get answers", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "aaa")
		snapshot := s.snapshot(space)
		copy(s.get(snapshot, "aaa").Value, "xxx")
		many, err := snapshot.GetMany(ctx, [][]byte{[]byte("aaa")})
		s.noError(err)
		copy(many[0].Value, "yyy")
		s.want(snapshot, "aaa", "aaa", 1)
	}},

	{name: "reads under a context that has ended fail as cancelled", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a")
		ended, cancel := context.WithCancel(ctx)
		cancel()
		snapshot := s.snapshot(space)
		_, err := space.Snapshot(ended)
		s.wantKind(err, fault.Cancelled)
		_, err = snapshot.Get(ended, []byte("a"))
		s.wantKind(err, fault.Cancelled)
		_, err = snapshot.GetMany(ended, [][]byte{[]byte("a")})
		s.wantKind(err, fault.Cancelled)
		iterator := snapshot.Scan(ended, engine.Range{}, false, 0)
		if iterator.Next() {
			s.Fatal("a scan under an ended context shows an entry")
		}
		s.wantKind(iterator.Close(), fault.Cancelled)
	}},
}

// checkRange compares scans of a range, in both directions, with the keys in
// order of which it must hold those inside.
func (s *suite) checkRange(r engine.Reader, ordered []string, scanned engine.Range) {
	s.Helper()
	var inside, reversed []string
	for _, key := range ordered {
		if key >= string(scanned.From) && (scanned.To == nil || key < string(scanned.To)) {
			inside = append(inside, key)
			reversed = append([]string{key}, reversed...)
		}
	}
	s.wantKeys(r, scanned, false, inside...)
	s.wantKeys(r, scanned, true, reversed...)
}
