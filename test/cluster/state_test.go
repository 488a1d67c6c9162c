package cluster

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// drain lets the group hand out all that is left, past every deadline and delay,
// acknowledges it, and returns what it did.
func drain(t *testing.T, db *store.Database) (did []operation) {
	t.Helper()
	ctx := t.Context()
	for {
		o := operation{What: takes, Call: time.Now().UnixNano()}
		page, err := db.Read(ctx, "events", store.ReadOptions{Consumer: "mailer", Limit: inFlight}, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Messages) == 0 {
			return did
		}
		o.Return = time.Now().UnixNano()
		for _, m := range page.Messages {
			handed := taken{uint64(m.Position), uint32(m.Deliveries)}
			o.Taken = append(o.Taken, handed)
			at := []topic.Settle{{Position: m.Position, Delivery: m.Deliveries}}
			acked := operation{What: acknowledge, Taken: []taken{handed}, Call: time.Now().UnixNano()}
			if acked.Count, err = db.Settle(ctx, "events", "mailer", store.Settlement{At: at}); err != nil {
				t.Fatal(err)
			}
			acked.Return = time.Now().UnixNano()
			did = append(did, acked)
		}
		did = append(did, o)
	}
}

// view reads one state of a database.
type view struct {
	*testing.T
	tx *store.Tx
}

func (v view) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

func (v view) report(name string) store.TopicReport {
	v.Helper()
	table, err := v.tx.Catalog().TopicTable(name)
	v.must(err)
	report, err := v.tx.ReportTopic(v.Context(), table)
	v.must(err)
	return report
}

// rows visits the rows of a table, or the messages of a topic, whose positions
// must be dense from the first to the last.
func (v view) rows(name string, visit func(row store.Row, decoded value.Value)) {
	v.Helper()
	table, err := v.tx.Catalog().Table(name)
	v.must(err)
	var next topic.Position
	if table.Kind == store.Topic {
		next = v.report(name).First
	}
	rows := v.tx.Scan(v.Context(), table, store.ScanOptions{})
	for rows.Next() {
		row := rows.Row()
		if table.Kind == store.Topic && row.Position != next {
			v.Fatalf("position %d of %s is not there, and %d is", next, name, row.Position)
		}
		next++
		decoded, err := row.Value()
		v.must(err)
		visit(row, decoded)
	}
	v.must(rows.Close())
	if table.Kind == store.Topic && next != v.report(name).Last+1 {
		v.Fatalf("the messages of %s end before %d, and the last position is %d", name, next, v.report(name).Last)
	}
}

// scan decodes a value into a Go variable.
func (v view) scan(from value.Value, into any) {
	v.Helper()
	v.must(from.Scan(into))
}

// key is the key of a record's identity, of type int.
func (v view) key(row store.Row) uint64 {
	v.Helper()
	n, ok := row.ID.Key.AsInt()
	if !ok {
		v.Fatalf("the key of %v is no int", row.ID)
	}
	return uint64(n)
}

// readState reads what the store holds in the end.
func readState(t *testing.T, db *store.Database) state {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Cancel()
	v := view{t, tx}
	s := state{
		counters: map[string]int64{}, effects: map[uint64]uint64{}, done: map[uint64]bool{},
		dead: map[uint64]int{}, places: map[string]uint64{}, totals: map[string]total{},
	}
	for name, list := range map[string]*[]entry{"events": &s.events, "ledger": &s.ledger} {
		v.rows(name, func(_ store.Row, decoded value.Value) {
			var e entry
			v.scan(decoded, &e)
			*list = append(*list, e)
		})
	}
	v.rows("payments", func(_ store.Row, decoded value.Value) {
		var p struct {
			Payment string `json:"payment"`
		}
		v.scan(decoded, &p)
		s.payments = append(s.payments, p.Payment)
	})
	v.rows("ring", func(store.Row, value.Value) {})
	v.rows("counters", func(row store.Row, decoded value.Value) {
		by, _ := row.ID.Key.AsString()
		s.counters[by], _ = decoded.AsInt()
	})
	v.rows("effects", func(row store.Row, decoded value.Value) {
		n, _ := decoded.AsInt()
		s.effects[v.key(row)] = uint64(n)
	})
	v.rows("done", func(row store.Row, _ value.Value) { s.done[v.key(row)] = true })
	v.rows("dead", func(_ store.Row, decoded value.Value) {
		var letter struct {
			Position uint64 `json:"position"`
		}
		v.scan(decoded, &letter)
		s.dead[letter.Position]++
	})
	v.rows("totals", func(row store.Row, decoded value.Value) {
		var sum total
		v.scan(decoded, &sum)
		reader, _ := row.ID.Key.AsString()
		s.totals[reader] = sum
	})
	events, ring := v.report("events"), v.report("ring")
	s.ringFirst, s.ringLast = uint64(ring.First), uint64(ring.Last)
	s.places["billing"] = uint64(events.Readers["billing"].Position)
	s.places["ringer"] = uint64(ring.Readers["ringer"].Position)
	figures := events.Groups["mailer"].Figures
	s.group = groupFigures{
		Committed: uint64(figures.Committed), InFlight: figures.InFlight, Lag: figures.Lag, DeadLettered: figures.DeadLettered,
	}
	return s
}
