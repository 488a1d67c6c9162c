package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// The histories of clients at once, as they were told, and whether there is an
// order of all that explains them (linearizability; checked by porcupine).

const (
	historyClients = 8
	historySteps   = 60
	historyTable   = "records"
	historyTopic   = "events"
	// checkFor bounds the search for an order; it takes milliseconds.
	checkFor = time.Minute
)

// recorder keeps a history. Its clock counts, so that no two moments are one.
type recorder struct {
	mu sync.Mutex
	// The following are protected by mu.
	now     int64
	history []porcupine.Operation
}

func (r *recorder) tick() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now++
	return r.now
}

// record runs one operation of a client.
func (r *recorder) record(client int, input any, run func() any) {
	call := r.tick()
	output := run()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now++
	r.history = append(r.history, porcupine.Operation{ClientId: client, Input: input, Call: call, Output: output, Return: r.now})
}

// recordHistory lets clients run at once.
func recordHistory(step func(r *recorder, client int, random *rand.Rand)) []porcupine.Operation {
	r := new(recorder)
	var clients sync.WaitGroup
	for client := range historyClients {
		random := rand.New(rand.NewPCG(rand.Uint64(), uint64(client)))
		clients.Go(func() {
			for range historySteps {
				step(r, client, random)
			}
		})
	}
	clients.Wait()
	return r.history
}

// recordInput is a statement of one record, recordOutput its answer: found is
// that of a Get, refused that of a Create.
type recordInput struct {
	what     string
	key, new int64
}

type recordOutput struct {
	value          int64
	found, refused bool
}

// recordModel is one record: its value, 0 while it is not there.
var recordModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		held, in, out := state.(int64), input.(recordInput), output.(recordOutput)
		switch in.what {
		case "create":
			if held != 0 {
				return out.refused, held
			}
			return !out.refused, in.new
		case "put":
			return true, in.new
		case "delete":
			return true, int64(0)
		}
		return out.found == (held != 0) && out.value == held, held
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int64][]porcupine.Operation{}
		for _, operation := range history {
			key := operation.Input.(recordInput).key
			byKey[key] = append(byKey[key], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
}

// statement runs one statement in a transaction of its own, again while it
// loses, as a node does.
func (f *fixture) statement(run func(tx *store.Tx, table *store.Table) error) error {
	for {
		tx, err := f.db.Begin(f.ctx)
		if err != nil {
			return err
		}
		table, err := tx.Catalog().Table(historyTable)
		if err == nil {
			err = run(tx, table)
		}
		if err == nil {
			_, err = tx.Commit(f.ctx)
		}
		tx.Cancel()
		if !errors.Is(err, fault.Conflict) {
			return err
		}
	}
}

func recordsHistory(t *testing.T) []porcupine.Operation {
	f := newFixture(t)
	_, err := f.transact(func(tx *store.Tx) error {
		return tx.DefineTable(f.ctx, store.Table{Name: historyTable, Kind: store.Space}, store.Refuse)
	})
	f.must(err)
	return recordHistory(func(r *recorder, client int, random *rand.Rand) {
		in := recordInput{
			what: []string{"create", "put", "delete", "get", "get"}[random.IntN(5)],
			key:  random.Int64N(3), new: r.tick(),
		}
		r.record(client, in, func() any {
			var out recordOutput
			err := f.statement(func(tx *store.Tx, table *store.Table) (err error) {
				out, err = f.runRecord(tx, table, in)
				return err
			})
			if out.refused = errors.Is(err, fault.RecordExists); err != nil && !out.refused {
				t.Errorf("%s of %d: %v", in.what, in.key, err)
			}
			return out
		})
	})
}

func (f *fixture) runRecord(tx *store.Tx, table *store.Table, in recordInput) (out recordOutput, err error) {
	key := value.Int(in.key)
	switch in.what {
	case "create":
		_, err = tx.Create(f.ctx, table, key, value.Int(in.new))
	case "put":
		_, err = tx.Put(f.ctx, table, key, value.Int(in.new))
	case "delete":
		err = tx.Delete(f.ctx, table, key)
	default:
		var row store.Row
		if row, out.found, err = tx.Get(f.ctx, table, key); err != nil || !out.found {
			return out, err
		}
		var v value.Value
		if v, err = row.Value(); err == nil {
			out.value, _ = v.AsInt()
		}
	}
	return out, err
}

func TestAHistoryOfRecordsIsThatOfOneAfterTheOther(t *testing.T) {
	history := recordsHistory(t)
	if result := porcupine.CheckOperationsTimeout(recordModel, history, checkFor); result != porcupine.Ok {
		t.Fatalf("the history of %d operations: %s", len(history), result)
	}
	// What no store may answer is found.
	for i, operation := range history {
		out := operation.Output.(recordOutput)
		if operation.Input.(recordInput).what == "get" && out.found {
			out.value--
			history[i].Output = out
			break
		}
	}
	if result := porcupine.CheckOperationsTimeout(recordModel, history, checkFor); result != porcupine.Illegal {
		t.Fatalf("a history with an answer that was never written: %s", result)
	}
}

// readerInput is an append of a number of messages, or a read by name.
type readerInput struct {
	append int
	limit  int
	// after is where the reader is moved first, -1 for not at all.
	after int64
}

// readerOutput is the first position and how many: given, or answered.
type readerOutput struct {
	first topic.Position
	count int
	// refused is that of AFTER past the last position.
	refused bool
}

// readerState is a topic with a reader.
type readerState struct{ last, place topic.Position }

var readerModel = porcupine.Model{
	Init: func() any { return readerState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(readerState), input.(readerInput), output.(readerOutput)
		if in.append > 0 {
			ok := out == readerOutput{first: s.last + 1, count: in.append}
			s.last += topic.Position(in.append)
			return ok, s
		}
		if in.after >= 0 {
			if topic.Position(in.after) > s.last {
				return out.refused, s
			}
			s.place = topic.Position(in.after)
		}
		want := readerOutput{count: min(in.limit, int(s.last-s.place))}
		if want.count > 0 {
			want.first = s.place + 1
		}
		s.place += topic.Position(want.count)
		return out == want, s
	},
}

func TestAHistoryOfAppendsAndANamedReaderIsThatOfOneAfterTheOther(t *testing.T) {
	f := newFixture(t)
	f.defineTopic(historyTopic, topic.TopicDefinition{})
	history := recordHistory(func(r *recorder, client int, random *rand.Rand) {
		in := readerInput{after: -1, limit: 1 + random.IntN(4)}
		switch random.IntN(6) {
		case 0, 1:
			in.append = 1 + random.IntN(3)
		case 2:
			in.after = random.Int64N(2 * historySteps)
		}
		inTransaction := random.IntN(2) == 0
		r.record(client, in, func() any {
			out, err := f.runReader(in, inTransaction)
			if err != nil {
				t.Errorf("%+v: %v", in, err)
			}
			return out
		})
	})
	if result := porcupine.CheckOperationsTimeout(readerModel, history, checkFor); result != porcupine.Ok {
		t.Fatalf("the history of %d operations: %s", len(history), result)
	}
	// One message answered twice is found.
	for i, operation := range history {
		in, out := operation.Input.(readerInput), operation.Output.(readerOutput)
		if in.append == 0 && in.after < 0 && out.count > 0 && out.first > 1 {
			out.first--
			history[i].Output = out
			break
		}
	}
	if result := porcupine.CheckOperationsTimeout(readerModel, history, checkFor); result != porcupine.Illegal {
		t.Fatalf("a history in which a message is answered twice: %s", result)
	}
}

// runReader runs an operation alone, or in a transaction that runs again while
// it loses. A transaction that reads nothing commits nothing, and tells what
// was true when it began.
func (f *fixture) runReader(in readerInput, inTransaction bool) (out readerOutput, err error) {
	options := store.ReadOptions{Consumer: "reader", Limit: in.limit}
	if in.after >= 0 {
		options.After = after(topic.Position(in.after))
	}
	messages := make([]store.NewMessage, in.append)
	for i := range messages {
		messages[i] = message(fmt.Sprint(i))
	}
	for {
		switch {
		case in.append > 0 && inTransaction:
			out, err = f.appendAll(messages)
		case in.append > 0:
			var appended []store.Message
			if appended, err = f.db.Append(f.ctx, historyTopic, messages...); err == nil {
				out = readerOutput{first: appended[0].Position, count: len(appended)}
			}
		case inTransaction:
			out, err = f.readInTransaction(options)
		default:
			var page store.Page
			page, err = f.db.Read(f.ctx, historyTopic, options, 0)
			out = outputOf(page)
		}
		if errors.Is(err, fault.InvalidClause) && in.after > 0 {
			return readerOutput{refused: true}, nil
		}
		if !errors.Is(err, fault.Conflict) {
			return out, err
		}
	}
}

func outputOf(page store.Page) (out readerOutput) {
	if len(page.Messages) > 0 {
		out = readerOutput{first: page.Messages[0].Position, count: len(page.Messages)}
	}
	return out
}

func (f *fixture) appendAll(messages []store.NewMessage) (readerOutput, error) {
	tx, err := f.db.Begin(f.ctx)
	if err != nil {
		return readerOutput{}, err
	}
	defer tx.Cancel()
	table, err := tx.Catalog().TopicTable(historyTopic)
	if err != nil {
		return readerOutput{}, err
	}
	for _, m := range messages {
		if _, _, err := tx.Append(f.ctx, table, m.Key, m.Value); err != nil {
			return readerOutput{}, err
		}
	}
	positions, err := tx.Commit(f.ctx)
	given := positions[historyTopic]
	return readerOutput{first: given.First, count: int(given.Last + 1 - given.First)}, err
}

func (f *fixture) readInTransaction(options store.ReadOptions) (readerOutput, error) {
	tx, err := f.db.Begin(f.ctx)
	if err != nil {
		return readerOutput{}, err
	}
	defer tx.Cancel()
	table, err := tx.Catalog().TopicTable(historyTopic)
	if err != nil {
		return readerOutput{}, err
	}
	page, err := tx.Read(f.ctx, table, options)
	if err != nil {
		return readerOutput{}, err
	}
	_, err = tx.Commit(f.ctx)
	return outputOf(page), err
}
