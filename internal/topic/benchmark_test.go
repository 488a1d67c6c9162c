package topic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A worker takes 100 and acknowledges 100, of what is in flight in random
// order; it should cost about the same however much is in flight.
func BenchmarkHandOutAndAcknowledgeAHundred(b *testing.B) {
	for _, inFlight := range []int{100, 10_000} {
		for _, keyedBy := range []string{"", "order"} {
			b.Run(fmt.Sprintf("inflight=%d/keyed=%t", inFlight, keyedBy != ""), func(b *testing.B) {
				benchmarkGroup(b, inFlight, keyedBy)
			})
		}
	}
}

const benchmarkBatch = 100

func benchmarkGroup(b *testing.B, inFlight int, keyedBy string) {
	random := rand.New(rand.NewPCG(1, 2))
	g := NewGroup(GroupDefinition{AckDeadline: time.Hour, InFlight: inFlight, KeyedBy: keyedBy}, Head{})
	view := View{First: 1, Last: MaxPosition, Now: epoch, Key: func(p Position) ([]byte, bool) {
		return fmt.Appendf(nil, "order-%d", p), true
	}}
	apply := func(c Change) Change {
		if err := g.Apply(c); err != nil {
			b.Fatal(err)
		}
		return c
	}
	var held []Position
	read := func(limit int) {
		for _, d := range apply(g.HandOut(view, limit)).Out {
			held = append(held, d.Position)
		}
	}
	read(inFlight)
	at := make([]Settle, benchmarkBatch)
	b.ReportAllocs()
	for b.Loop() {
		for i := range at {
			j := random.IntN(len(held))
			at[i] = Settle{Position: held[j], Delivery: 1}
			held[j] = held[len(held)-1]
			held = held[:len(held)-1]
		}
		if c := apply(g.Acknowledge(view, at)); c.Count != benchmarkBatch {
			b.Fatal(c.Count)
		}
		view.Now = view.Now.Add(time.Microsecond)
		read(benchmarkBatch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchmarkBatch, "ns/message")
}

// A transaction clones the group, takes one message and acknowledges it.
func BenchmarkTransaction(b *testing.B) {
	for _, inFlight := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			g := NewGroup(GroupDefinition{AckDeadline: time.Hour, InFlight: inFlight}, Head{})
			view := View{First: 1, Last: MaxPosition, Now: epoch}
			if err := g.Apply(g.HandOut(view, inFlight-1)); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				transaction := g.Clone()
				taken := transaction.HandOut(view, 1)
				if err := transaction.Apply(taken); err != nil {
					b.Fatal(err)
				}
				acknowledged := transaction.Acknowledge(view, at(taken.Out[0].Position))
				if err := g.Apply(taken, acknowledged); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A waiting READ asks whether there is anything for it.
func BenchmarkReady(b *testing.B) {
	g := NewGroup(GroupDefinition{AckDeadline: time.Hour, InFlight: MaxInFlight}, Head{})
	view := View{First: 1, Last: MaxInFlight, Now: epoch}
	if err := g.Apply(g.HandOut(view, MaxInFlight)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if now, _ := g.Ready(view); now {
			b.Fatal("ready")
		}
	}
}
