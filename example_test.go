package tidemark_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/fault"
)

// openShop opens a store in memory with a database to work in. A program opens
// one in a folder, with tidemark.Open.
func openShop(ctx context.Context, definitions string) (*tidemark.Store, *tidemark.Database) {
	store, err := tidemark.OpenMemory()
	if err != nil {
		log.Fatal(err)
	}
	db, err := store.Database(ctx, "shop", "orders")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(ctx, definitions, nil); err != nil {
		log.Fatal(err)
	}
	return store, db
}

func ExampleDatabase_Exec() {
	ctx := context.Background()
	store, db := openShop(ctx, "")
	defer store.Close()

	answers, err := db.Exec(ctx, `
		DEFINE TOPIC events;
		CREATE events:'evt-1' = { kind: $kind };
		DELETE events:'evt-1';
	`, tidemark.Params{"kind": "paid"})
	fmt.Println(len(answers), "answers")
	fmt.Println(answers[1].Value)
	fmt.Println(errors.Is(err, fault.TopicIsAppendOnly))
	// Output:
	// 3 answers
	// [{ id: events:'evt-1', position: 1, value: { kind: 'paid' } }]
	// true
}

func ExampleDatabase_Query() {
	ctx := context.Background()
	store, db := openShop(ctx, `
		DEFINE TABLE invoices (customer string, total int);
		CREATE invoices:1 = { customer: 'ada', total: 40 };
		CREATE invoices:2 = { customer: 'grace', total: 60 };
	`)
	defer store.Close()

	rows, err := db.Query(ctx, "SELECT * FROM invoices WHERE total > $least ORDER BY id", tidemark.Params{"least": 10})
	if err != nil {
		log.Fatal(err)
	}
	var invoices []struct {
		Customer string `json:"customer"`
		Total    int    `json:"total"`
	}
	if err := rows.Scan(&invoices); err != nil {
		log.Fatal(err)
	}
	for i, row := range rows.All() {
		fmt.Println(row.ID, invoices[i].Customer, invoices[i].Total)
	}
	// Output:
	// invoices:1 ada 40
	// invoices:2 grace 60
}

func ExampleDatabase_Begin() {
	ctx := context.Background()
	store, db := openShop(ctx, "DEFINE TOPIC events; DEFINE COLLECTION invoices;")
	defer store.Close()

	tx, err := db.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Cancel()
	if err := tx.Put(ctx, "invoices", "o-17", map[string]any{"total": 40}); err != nil {
		log.Fatal(err)
	}
	if err := tx.Append(ctx, "events", map[string]any{"kind": "invoiced"}); err != nil {
		log.Fatal(err)
	}
	appended, err := tx.Commit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("appended at", appended["events"].First)
	// Output:
	// appended at 1
}

func ExampleDatabase_Transact() {
	ctx := context.Background()
	store, db := openShop(ctx, "DEFINE TABLE counters (n int); CREATE counters:1 = { n: 0 };")
	defer store.Close()

	// Run again by itself where another transaction committed first.
	err := db.Transact(ctx, func(tx *tidemark.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE counters:1 SET n = n + 1", nil)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	var counter struct {
		N int `json:"n"`
	}
	rows, err := db.Query(ctx, "SELECT * FROM counters:1", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := rows.Scan(&counter); err != nil {
		log.Fatal(err)
	}
	fmt.Println(counter.N)
	// Output:
	// 1
}

func ExampleTopic_Append() {
	ctx := context.Background()
	store, db := openShop(ctx, "DEFINE TOPIC events;")
	defer store.Close()

	events := db.Topic("events")
	first, _, err := events.Append(ctx, map[string]any{"kind": "paid"}, tidemark.WithKey("evt-1"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.ID(), "at", first.Position())
	// A producer that lost the answer tries again, and does not append twice.
	_, _, err = events.Append(ctx, map[string]any{"kind": "paid"}, tidemark.WithKey("evt-1"))
	fmt.Println(errors.Is(err, fault.RecordExists))
	// Output:
	// events:'evt-1' at 1
	// true
}

func ExampleTopic_AppendAsync() {
	ctx := context.Background()
	store, db := openShop(ctx, "DEFINE TOPIC events;")
	defer store.Close()

	const count = 3
	durable := make(chan uint64, count)
	for n := range count {
		err := db.Topic("events").AppendAsync(ctx, map[string]any{"n": n}, func(m tidemark.Message, _ bool, err error) {
			if err != nil {
				log.Print(err)
			}
			durable <- m.Position()
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	for range count {
		fmt.Println(<-durable)
	}
	// Output:
	// 1
	// 2
	// 3
}

func ExampleTopic_Read() {
	ctx := context.Background()
	store, db := openShop(ctx, "DEFINE TOPIC events; INSERT INTO events [{ kind: 'paid' }, { kind: 'shipped' }];")
	defer store.Close()

	page, err := db.Topic("events").Read(ctx, tidemark.ReadOptions{After: 1})
	if err != nil {
		log.Fatal(err)
	}
	for _, message := range page.Messages {
		var event struct {
			Kind string `json:"kind"`
		}
		if err := message.Scan(&event); err != nil {
			log.Fatal(err)
		}
		fmt.Println(message.Position(), event.Kind)
	}
	// Output:
	// 2 shipped
}

func ExampleTopic_Consume() {
	ctx, stop := context.WithCancel(context.Background())
	store, db := openShop(ctx, `
		DEFINE TOPIC events; DEFINE COLLECTION invoices;
		INSERT INTO events [{ order: 'o-17', total: 40 }, { order: 'o-18', total: 60 }];
	`)
	defer store.Close()

	// The invoices and the position of billing commit together: each message
	// makes its invoice exactly once, whenever the process dies.
	err := db.Topic("events").Consume(ctx, "billing", func(ctx context.Context, tx *tidemark.Tx, messages []tidemark.Message) error {
		for _, message := range messages {
			var event struct {
				Order string `json:"order"`
				Total int    `json:"total"`
			}
			if err := message.Scan(&event); err != nil {
				return err
			}
			if err := tx.Put(ctx, "invoices", event.Order, map[string]any{"total": event.Total}); err != nil {
				return err
			}
		}
		stop() // A service goes on; the example has seen enough.
		return nil
	}, tidemark.ConsumeOptions{})
	fmt.Println("stopped:", err)

	rows, err := db.Query(context.Background(), "SELECT * FROM invoices ORDER BY id", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows.Len(), "invoices")
	// Output:
	// stopped: <nil>
	// 2 invoices
}

func ExampleTopic_Group() {
	ctx := context.Background()
	store, db := openShop(ctx, `
		DEFINE TOPIC mail; DEFINE GROUP 'mailer' ON TOPIC mail ACK DEADLINE 30s IN FLIGHT 10;
		INSERT INTO mail [{ to: 'ada@example.com' }, { to: 'grace@example.com' }];
	`)
	defer store.Close()

	mailer := db.Topic("mail").Group("mailer")
	page, err := mailer.Read(ctx, 10, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, message := range page.Messages {
		// The work of the message, outside the store: it may be repeated when
		// the process dies before the Ack.
		if _, err := mailer.Ack(ctx, message); err != nil {
			log.Fatal(err)
		}
		fmt.Println("sent", message.Position(), "delivery", message.Deliveries())
	}
	// Output:
	// sent 1 delivery 1
	// sent 2 delivery 1
}

func ExampleConnect() {
	ctx := context.Background()
	// "file:./data", "postgres://app@db/shop" or "ws://db-1:7420,db-2:7420" is all
	// that changes where the store is.
	store, err := tidemark.Connect(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	db, err := store.Database(ctx, "shop", "orders")
	if err != nil {
		log.Fatal(err)
	}
	rows, err := db.Query(ctx, "INFO FOR DATABASE", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows.Len(), "answer")
	// Output:
	// 1 answer
}

func ExampleTopic_Follow() {
	ctx := context.Background()
	store, db := openShop(ctx, "DEFINE TOPIC events; INSERT INTO events [{ kind: 'paid' }, { kind: 'shipped' }];")
	defer store.Close()

	for page, err := range db.Topic("events").Follow(ctx, tidemark.FollowOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		for _, message := range page.Messages {
			fmt.Println("committed at", message.Position())
		}
		break // It would go on with what commits next.
	}
	// Output:
	// committed at 1
	// committed at 2
}

func ExampleGroup_Work() {
	ctx, stop := context.WithCancel(context.Background())
	store, db := openShop(ctx, `
		DEFINE TOPIC lost; DEFINE TOPIC mail;
		DEFINE GROUP 'mailer' ON TOPIC mail ACK DEADLINE 30s DELIVERIES 5 DEAD LETTER TO lost;
		INSERT INTO mail [{ to: 'ada@example.com' }, 'no letter', { to: 'grace@example.com' }];
	`)
	defer store.Close()

	err := db.Topic("mail").Group("mailer").Work(ctx, func(ctx context.Context, message tidemark.Message) error {
		var letter struct {
			To string `json:"to"`
		}
		if err := message.Scan(&letter); err != nil {
			return tidemark.Reject("it is no letter") // It never will be.
		}
		fmt.Println("sent to", letter.To)
		if message.Position() == 3 {
			stop() // A service goes on; the example has seen enough.
		}
		return nil // Done. An error would have it handed out again.
	}, tidemark.WorkOptions{Failed: func(message tidemark.Message, err error) {
		fmt.Println("message", message.Position(), err)
	}})
	fmt.Println("stopped:", err)
	// Output:
	// sent to ada@example.com
	// message 2 rejected: it is no letter
	// sent to grace@example.com
	// stopped: <nil>
}
