package pebble_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
)

const (
	benchValueBytes = 128
	benchCommitKeys = 8000 // about a mebibyte
)

func benchCommit(b *testing.B, space engine.Space, topic byte) {
	value := make([]byte, benchValueBytes)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(random.Uint32())
	}
	_, err := space.Commit(ctx, func(c engine.Commit) error {
		var key [16]byte
		key[0] = topic
		for i := range uint64(benchCommitKeys) {
			binary.BigEndian.PutUint64(key[8:], uint64(c.Sequence())*benchCommitKeys+i)
			binary.BigEndian.PutUint64(value, random.Uint64())
			c.Set(key[:], value)
		}
		return nil
	})
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkCommit writes commits of about a mebibyte, a number of them on
// their way at once.
func BenchmarkCommit(b *testing.B) {
	for _, pipeline := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("pipeline=", pipeline), func(b *testing.B) {
			e, err := pebble.Open(b.TempDir(), pebble.Options{})
			if err != nil {
				b.Fatal(err)
			}
			space, err := e.Space(ctx, 1)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(benchCommitKeys * benchValueBytes)
			var left atomic.Int64
			left.Store(int64(b.N))
			var committers sync.WaitGroup
			for range pipeline {
				committers.Go(func() {
					for left.Add(-1) >= 0 {
						benchCommit(b, space, 't')
					}
				})
			}
			committers.Wait()
			b.ReportMetric(float64(b.N*benchCommitKeys)/b.Elapsed().Seconds(), "keys/s")
			b.Log("\n" + strings.TrimSpace(pebble.Metrics(e)))
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkSmallCommit writes one key a commit, so that the sync is all.
func BenchmarkSmallCommit(b *testing.B) {
	e, err := pebble.Open(b.TempDir(), pebble.Options{})
	if err != nil {
		b.Fatal(err)
	}
	space, err := e.Space(ctx, 1)
	if err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := space.Commit(ctx, func(c engine.Commit) error {
				c.Set([]byte("key"), make([]byte, benchValueBytes))
				return nil
			}); err != nil {
				b.Error(err)
			}
		}
	})
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkScan reads the keys of many commits, through the engine and from
// Pebble itself. One operation is one key.
func BenchmarkScan(b *testing.B) {
	e, err := pebble.Open(b.TempDir(), pebble.Options{})
	if err != nil {
		b.Fatal(err)
	}
	space, err := e.Space(ctx, 1)
	if err != nil {
		b.Fatal(err)
	}
	for range 100 {
		benchCommit(b, space, 't')
	}
	snapshot, err := space.Snapshot(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("engine", func(b *testing.B) {
		b.ReportAllocs()
		for read := 0; read < b.N; {
			iterator := snapshot.Scan(ctx, engine.Range{}, false, 0)
			for read < b.N && iterator.Next() {
				if len(iterator.Value()) != benchValueBytes || len(iterator.Key()) != 16 {
					b.Fatal("a wrong entry")
				}
				read++
			}
			if err := iterator.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		for read := 0; read < b.N; {
			read += pebble.RawScan(e, b.N-read)
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		var key [16]byte
		key[0] = 't'
		for i := range b.N {
			binary.BigEndian.PutUint64(key[8:], uint64(i)*7919%(100*benchCommitKeys))
			if entry, err := snapshot.Get(ctx, key[:]); err != nil || entry.Sequence == 0 {
				b.Fatal(entry, err)
			}
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			taken, err := space.Snapshot(ctx)
			if err != nil {
				b.Fatal(err)
			}
			taken.Release()
		}
	})
	snapshot.Release()
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
}
