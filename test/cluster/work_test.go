package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/fault"
)

// definitions are what the workers work on.
const definitions = `
	DEFINE TOPIC events; DEFINE TOPIC ledger; DEFINE TOPIC dead;
	DEFINE TOPIC payments DEDUPLICATE 1h ON payment;
	DEFINE TOPIC ring RETAIN BYTES 2000;
	DEFINE SPACE counters; DEFINE SPACE effects; DEFINE SPACE done; DEFINE SPACE totals;
	DEFINE GROUP 'mailer' ON TOPIC events ACK DEADLINE 2s IN FLIGHT 30 DELIVERIES 10 DEAD LETTER TO dead;
`

// lookLimit is how many messages a look reads at most.
const lookLimit = 10_000

// inFlight is the group's limit.
const inFlight = 30

// entry is a message of events and ledger.
type entry struct {
	By string `json:"by"`
	N  int64  `json:"n"`
}

// worker is clients of one process that work at random until they are told to
// end, or the process is killed.
type worker struct {
	db       *tidemark.Database
	name     string
	recorder *recorder
}

// patience is how long a worker tries to open the store.
const patience = time.Minute

// work does random work until standard input ends.
func work(o order) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	file, err := os.OpenFile(o.History, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // Every line was written at once.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var s *tidemark.Store
	for began := time.Now(); s == nil; {
		s, err = tidemark.OpenPostgres(ctx, o.URL, tidemark.WithSchema(o.Schema), tidemark.WithLog(log))
		if err != nil && (!errors.Is(err, fault.Unavailable) || time.Since(began) > patience) {
			return err
		}
	}
	db, err := s.Database(ctx, "shop", "orders")
	if err != nil {
		return errors.Join(err, s.Close())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // Its end is what counts.
		stop()
	}()
	w := &worker{db: db, name: o.Name, recorder: &recorder{file: file}}
	w.run(ctx, o.Seed)
	return s.Close()
}

// run lets the clients work until ctx ends.
func (w *worker) run(ctx context.Context, seed uint64) {
	var clients sync.WaitGroup
	for i, step := range []func(context.Context, *rand.Rand, string, int64) error{
		w.append, w.append, w.transact, w.transact, w.pay, w.ring, w.look, w.consume,
		w.member, w.member, w.memberInTransaction, w.inform, w.define,
	} {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		by := fmt.Sprintf("%s %d", w.name, i)
		clients.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				// What is begun is finished: only its answer says what it was.
				if err := step(context.WithoutCancel(ctx), random, by, n); err != nil && !fault.Of(err).Kind.Retriable() {
					time.Sleep(20 * time.Millisecond) // A refusal that stays is not asked for at full speed.
				}
				// Clients that think between their steps meet in more ways.
				time.Sleep(time.Duration(random.IntN(15)) * time.Millisecond)
			}
		})
	}
	clients.Wait()
}

func (w *worker) append(ctx context.Context, _ *rand.Rand, by string, n int64) error {
	err := w.recorder.record(operation{What: appends, By: by, N: n}, func(o *operation) error {
		m, _, err := w.db.Topic("events").Append(ctx, entry{by, n})
		if err == nil {
			o.First, o.Last = m.Position(), m.Position()
		}
		return err
	})
	return err
}

// inTransaction runs work in one transaction, which may lose.
func (w *worker) inTransaction(ctx context.Context, work func(tx *tidemark.Tx) error) (map[string]tidemark.Appended, error) {
	tx, err := w.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Cancel()
	if err := work(tx); err != nil {
		return nil, err
	}
	return tx.Commit(ctx)
}

// transact appends two messages to one topic and one to another, and says so in
// a record.
func (w *worker) transact(ctx context.Context, _ *rand.Rand, by string, n int64) error {
	err := w.recorder.record(operation{What: transacts, By: by, N: n}, func(o *operation) error {
		positions, err := w.inTransaction(ctx, func(tx *tidemark.Tx) error {
			for _, topic := range []string{"events", "ledger", "events"} {
				if err := tx.Append(ctx, topic, entry{by, n}); err != nil {
					return err
				}
			}
			return tx.Put(ctx, "counters", by, n)
		})
		o.First, o.Last, o.Ledger = positions["events"].First, positions["events"].Last, positions["ledger"].First
		return err
	})
	return err
}

// pay appends a payment that others may append too, at the same moment.
func (w *worker) pay(ctx context.Context, random *rand.Rand, _ string, _ int64) error {
	const paymentsPerSecond = 20
	key := fmt.Sprint("payment ", time.Now().UnixMilli()*paymentsPerSecond/1000-random.Int64N(3))
	err := w.recorder.record(operation{What: pays, By: key}, func(o *operation) error {
		m, appended, err := w.db.Topic("payments").Append(ctx, map[string]string{"payment": key})
		if err == nil && appended {
			o.First, o.Count = m.Position(), 1
		}
		return err
	})
	return err
}

// total is what a reader dealt with, and what lapsed.
type total struct {
	Count  uint64 `json:"count"`
	Lapsed uint64 `json:"lapsed"`
}

// addTo adds to a total in a transaction.
func addTo(ctx context.Context, tx *tidemark.Tx, reader string, page tidemark.Page) (total, error) {
	var sum total
	rows, err := tx.Query(ctx, "SELECT * FROM totals:$reader", tidemark.Params{"reader": reader})
	if err != nil {
		return sum, err
	}
	for _, row := range rows.All() {
		if err := row.Value.Scan(&sum); err != nil {
			return sum, err
		}
	}
	sum.Count += uint64(len(page.Messages))
	sum.Lapsed += page.Lapsed
	return sum, tx.Put(ctx, "totals", reader, sum)
}

// ring appends to a topic that keeps little, and reads it as ringer.
func (w *worker) ring(ctx context.Context, random *rand.Rand, by string, n int64) error {
	if random.IntN(4) > 0 {
		err := w.recorder.record(operation{What: rings, By: by, N: n}, func(o *operation) error {
			m, _, err := w.db.Topic("ring").Append(ctx, make([]byte, random.IntN(200)))
			if err == nil {
				o.First, o.Last = m.Position(), m.Position()
			}
			return err
		})
		return err
	}
	_, err := w.inTransaction(ctx, func(tx *tidemark.Tx) error {
		page, err := tx.ReadFor(ctx, "ring", "ringer", 1+random.IntN(20))
		if err == nil {
			_, err = addTo(ctx, tx, "ringer", page)
		}
		return err
	})
	return err
}

// look reads to the end from somewhere, and now and then waits for more.
func (w *worker) look(ctx context.Context, random *rand.Rand, _ string, _ int64) error {
	after := w.recorder.last.Load() % 200
	if random.IntN(2) == 0 {
		after = 0
	}
	err := w.recorder.record(operation{What: looks, First: uint64(after)}, func(o *operation) error {
		page, err := w.db.Topic("events").Read(ctx, tidemark.ReadOptions{
			After: uint64(after), Limit: lookLimit, Wait: time.Duration(random.IntN(100)) * time.Millisecond,
		})
		if err != nil {
			return err
		}
		o.Last, o.Count = uint64(after), len(page.Messages)
		for _, m := range page.Messages {
			if m.Position() != o.Last+1 {
				return fault.New(fault.Internal, "position %d follows %d", m.Position(), o.Last)
			}
			o.Last = m.Position()
		}
		if o.Count == 0 {
			return nil
		}
		var e entry
		err = page.Messages[o.Count-1].Scan(&e)
		o.By, o.N = e.By, e.N
		return err
	})
	return err
}

// consume reads as billing, and notes for each message the how manieth it is.
func (w *worker) consume(ctx context.Context, random *rand.Rand, _ string, _ int64) error {
	err := w.recorder.record(operation{What: consumes}, func(o *operation) error {
		_, err := w.inTransaction(ctx, func(tx *tidemark.Tx) error {
			page, err := tx.ReadFor(ctx, "events", "billing", 1+random.IntN(40))
			if err != nil || len(page.Messages) == 0 {
				return err
			}
			sum, err := addTo(ctx, tx, "billing", page)
			if err != nil {
				return err
			}
			number := sum.Count - uint64(len(page.Messages))
			for _, m := range page.Messages {
				number++
				o.Last = m.Position()
				_, err := tx.Exec(ctx, "CREATE effects:$position = $number", tidemark.Params{"position": m.Position(), "number": number})
				if err != nil {
					return err
				}
			}
			return nil
		})
		return err
	})
	return err
}

func takenOf(messages []tidemark.Message) []taken {
	list := make([]taken, len(messages))
	for i, m := range messages {
		list[i] = taken{m.Position(), m.Deliveries()}
	}
	return list
}

// member takes messages of the group and settles each, one way or another.
func (w *worker) member(ctx context.Context, random *rand.Rand, _ string, _ int64) error {
	group := w.db.Topic("events").Group("mailer")
	var messages []tidemark.Message
	err := w.recorder.record(operation{What: takes}, func(o *operation) error {
		page, err := group.Read(ctx, 1+random.IntN(8), 50*time.Millisecond)
		messages = page.Messages
		o.Taken = takenOf(messages)
		return err
	})
	for _, m := range messages {
		settle, what := group.Ack, acknowledge
		switch random.IntN(25) {
		case 0:
			continue // The worker forgets it.
		case 1:
			settle, what = group.Nack, handsBack
		case 2:
			settle, what = group.Release, handsBack
		case 3:
			settle, what = func(ctx context.Context, messages ...tidemark.Message) (int, error) {
				return group.Reject(ctx, "at random", messages...)
			}, rejects
		}
		err = w.recorder.record(operation{What: what, Taken: takenOf([]tidemark.Message{m})}, func(o *operation) (err error) {
			o.Count, err = settle(ctx, m)
			return err
		})
	}
	return err
}

// memberInTransaction takes messages, notes an effect of each and acknowledges
// them, in one transaction.
func (w *worker) memberInTransaction(ctx context.Context, _ *rand.Rand, _ string, _ int64) error {
	err := w.recorder.record(operation{What: works}, func(o *operation) error {
		_, err := w.inTransaction(ctx, func(tx *tidemark.Tx) error {
			group := w.db.Topic("events").Group("mailer").In(tx)
			page, err := group.Read(ctx, 3, 0)
			if err != nil || len(page.Messages) == 0 {
				return err
			}
			o.Taken = takenOf(page.Messages)
			for _, m := range page.Messages {
				if _, err := tx.Exec(ctx, "CREATE done:$position = true", tidemark.Params{"position": m.Position()}); err != nil {
					return err
				}
			}
			count, err := group.Ack(ctx, page.Messages...)
			if err == nil && count != len(page.Messages) {
				err = fault.New(fault.Internal, "acknowledged %d of %d messages that the transaction took itself", count, len(page.Messages))
			}
			return err
		})
		return err
	})
	return err
}

// inform asks how many messages the group has in flight.
func (w *worker) inform(ctx context.Context, _ *rand.Rand, _ string, _ int64) error {
	err := w.recorder.record(operation{What: informs}, func(o *operation) error {
		answers, err := w.db.Exec(ctx, "INFO FOR TOPIC events", nil)
		if err != nil {
			return err
		}
		var info struct {
			Groups map[string]struct {
				InFlight int `json:"in_flight"`
			} `json:"groups"`
		}
		err = answers[0].Value.Scan(&info)
		o.Count = info.Groups["mailer"].InFlight
		return err
	})
	time.Sleep(100 * time.Millisecond) // It is asked now and then.
	return err
}

// define defines a topic, appends to it and drops it.
func (w *worker) define(ctx context.Context, _ *rand.Rand, _ string, n int64) error {
	name := fmt.Sprintf("scratch_%s_%d", w.name, n%3)
	err := w.recorder.record(operation{What: defines, By: name, N: n}, func(*operation) error {
		_, err := w.db.Exec(ctx, fmt.Sprintf(`
			DEFINE TOPIC IF NOT EXISTS %[1]s; CREATE %[1]s = 1; ALTER TOPIC %[1]s MAX BYTES %[2]d; DROP TOPIC %[1]s;
		`, name, 100+n), nil)
		return err
	})
	time.Sleep(300 * time.Millisecond) // A definition makes what is under way run again, so there are few.
	return err
}
