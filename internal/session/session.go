// Package session runs one caller's statements: it knows the namespace and
// database in use, the open transaction and the parameters, binds the tree of
// a statement to what the store holds, and answers.
//
// It decides where a statement runs. What only makes sense at the newest state
// (a lone append, a lone read for a consumer, an acknowledgement) is handed to
// the store to run when it is sealed. Everything else runs in a transaction:
// the caller's, or one of its own that runs again until it commits.
package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// The bounds of a session.
const (
	// MaxAnswerRows and MaxAnswerBytes bound what one SELECT, UPDATE or DELETE
	// may answer, since an answer is held in memory. Ask for more in pages,
	// with LIMIT and START, or with READ.
	MaxAnswerRows  = 100_000
	MaxAnswerBytes = 64 << 20
	// MaxWait is the longest WAIT and SLEEP.
	MaxWait = 60 * time.Second
	// rerunFor is how long a lost transaction is run again before its caller
	// is told. Each run starts from the newest state, so only a flood of other
	// commits to the same rows lasts that long.
	rerunFor = 10 * time.Second
	// maxRerunPause bounds the random pause between two runs.
	maxRerunPause = 20 * time.Millisecond
)

// Options are a session's settings.
type Options struct {
	// Database is the database in use from the start, nil for none.
	Database *store.Database
	// Running tells what runs on this node; nil where nothing does.
	Running Running
	// Limits bound what its statements may take.
	Limits Limits
	// Caller is on whose authority the statements run. Default: the process's
	// own, which may do everything.
	Caller Caller
	// PassOn says that answers are only encoded: messages among them are then
	// not decoded, and Answer.Value is none.
	PassOn bool
}

// TellTimes says whether messages in the answers from now on tell when they were
// appended, as the field appended, where their identity does not.
func (s *Session) TellTimes(tell bool) { s.times = tell }

// Running tells of the declared consumers that run on this node.
type Running interface {
	// Report is what INFO tells under running of a consumer; it is empty
	// where this node does not run it.
	Report(database *store.Database, consumer *store.Consumer) value.Object
}

// Session is one caller's session. It is used by one goroutine at a time, and
// must be closed.
type Session struct {
	store    *store.Store
	running  Running
	limits   Limits
	passOn   bool
	times    bool // see TellTimes
	params   map[string]value.Value
	database *store.Database
	// namespace in use; the database's where there is one.
	namespace string
	// unseen is the database in use of a stranger, which is looked up when
	// something is appended; "" where it was, or none is.
	unseen string

	caller Caller
	// authority is what the caller may do, as of the statement that runs.
	authority authority
	// appending is the same for appends that are begun one after another.
	appending appendStanding
	// home is the database of a caller who is a user of one.
	home *store.Database

	// tx is the open transaction, nil for none.
	tx *store.Tx
	// used says that the transaction has read or written.
	used bool
	// failure is the first failure of the open transaction.
	failure *fault.Error
	// joined says that the open transaction is part of one of the caller's,
	// which no statement ends.
	joined bool

	// expressions are those of definitions, by their text.
	expressions map[string]lang.Expression
}

// New starts a session.
func New(s *store.Store, options Options) *Session {
	session := &Session{store: s, running: options.Running, limits: options.Limits.withDefaults(), passOn: options.PassOn, database: options.Database, caller: options.Caller}
	if options.Database != nil {
		session.namespace = options.Database.Namespace
	}
	return session
}

// Close cancels the open transaction.
func (s *Session) Close() { s.endTransaction() }

// Run runs a script and returns one answer a statement. Its error is a syntax
// error: then nothing ran.
func (s *Session) Run(ctx context.Context, source string, params map[string]value.Value) ([]Answer, error) {
	script, err := lang.Parse(source)
	if err != nil {
		return nil, err
	}
	answers := make([]Answer, 0, len(script.Statements))
	s.RunScript(ctx, script, params, func(_ lang.Statement, a Answer) { answers = append(answers, a) })
	return answers, nil
}

// RunScript runs a parsed script and tells each answer as it is known: those
// of a transaction that stands whole in the script when it has ended, since
// until then it may be run again.
func (s *Session) RunScript(ctx context.Context, script *lang.Script, params map[string]value.Value, tell func(lang.Statement, Answer)) {
	s.params = params
	statements := script.Statements
	for len(statements) > 0 {
		count := Unit(statements, s.tx != nil)
		if count == 1 {
			tell(statements[0], s.run(ctx, statements[0]))
		} else {
			for i, answer := range s.runTransaction(ctx, statements[:count]) {
				tell(statements[i], answer)
			}
		}
		statements = statements[count:]
	}
}

// Unit is how many statements, from the first, run as one and may so be run
// again: a whole BEGIN … COMMIT where no transaction is open, or one.
func Unit(statements []lang.Statement, inTransaction bool) int {
	if _, begins := statements[0].(*lang.Begin); !begins || inTransaction {
		return 1
	}
	for i, statement := range statements {
		switch statement.(type) {
		case *lang.Commit:
			return i + 1
		case *lang.Cancel:
			return 1
		}
	}
	return 1
}

// runTransaction runs a whole BEGIN … COMMIT again until it commits, or a
// statement of it fails.
func (s *Session) runTransaction(ctx context.Context, statements []lang.Statement) []Answer {
	answers := make([]Answer, len(statements))
	_ = Rerun(ctx, func() error {
		held := 0
		for i, statement := range statements {
			if i > 0 && answers[0].Err != nil {
				// There is no transaction to run it in, and by itself it would
				// be half of one.
				answers[i] = answers[0]
				continue
			}
			answers[i] = s.run(ctx, statement)
			// They are all held until the COMMIT.
			held += weight(answers[i].Value)
			if held > s.limits.AnswerBytes && s.tx != nil && s.failure == nil {
				answers[i] = failed(fault.New(fault.TooLarge, "the answers of the transaction take more than %d bytes; ask for less in one transaction", s.limits.AnswerBytes))
				s.failure = answers[i].Err
			}
		}
		// The last one is the COMMIT; a conflict there is what running again
		// mends. Err has a type of its own, whose nil is no nil error.
		if err := answers[len(answers)-1].Err; err != nil {
			return err
		}
		return nil
	})
	return answers
}

// Rerun runs a transaction again while it loses to others, each time after a
// short random pause, until it commits, fails otherwise, or has lost for ten
// seconds.
func Rerun(ctx context.Context, transaction func() error) error {
	started := time.Now()
	pause := 100 * time.Microsecond
	for {
		err := transaction()
		if !errors.Is(err, fault.Conflict) || ctx.Err() != nil || time.Since(started) > rerunFor {
			return err
		}
		time.Sleep(rand.N(pause))
		pause = min(2*pause, maxRerunPause)
	}
}

// run runs one statement and keeps the rules of the transaction it stands in.
func (s *Session) run(ctx context.Context, statement lang.Statement) Answer {
	if s.joined && endsTransaction(statement) {
		return s.answerOf(value.Null(), errEndsJoined())
	}
	if err := s.authorize(ctx, statement); err != nil {
		return s.answerOf(value.Null(), err)
	}
	if !s.authority.isStranger() {
		switch statement.(type) {
		case *lang.Begin:
			return s.answerOf(value.Null(), s.Begin(ctx))
		case *lang.Commit:
			return s.commitStatement(ctx)
		case *lang.Cancel:
			return s.answerOf(value.Null(), s.cancel())
		}
	}
	if s.tx != nil && s.failure != nil {
		return failed(s.transactionFailed())
	}
	answer, err := s.executeInTime(ctx, statement)
	if err != nil {
		answer = failed(err)
		if s.tx != nil {
			s.failure = answer.Err
		}
	}
	return answer
}

func (s *Session) answerOf(v value.Value, err error) Answer {
	if err != nil {
		answer := failed(err)
		if s.tx != nil && s.failure == nil {
			s.failure = answer.Err
		}
		return answer
	}
	return Answer{Value: v}
}

func (s *Session) transactionFailed() error {
	return fault.New(fault.TransactionFailed, "the transaction failed with %s: %s", s.failure.Kind, s.failure.Message)
}

// Begin opens a transaction.
func (s *Session) Begin(ctx context.Context) error {
	if s.tx != nil {
		return fault.New(fault.NestedTransaction, "a transaction is open already; COMMIT or CANCEL it first")
	}
	return s.begin(func(db *store.Database) (*store.Tx, error) { return db.Begin(ctx) })
}

func (s *Session) begin(open func(*store.Database) (*store.Tx, error)) error {
	db, err := s.inDatabase()
	if err != nil {
		return err
	}
	tx, err := open(db)
	if err != nil {
		return err
	}
	s.tx, s.used, s.failure = tx, false, nil
	return nil
}

// Commit commits the open transaction and returns the positions of what it
// appended, by topic.
func (s *Session) Commit(ctx context.Context) (map[string]store.Appended, error) {
	if s.tx == nil {
		return nil, fault.New(fault.NoTransaction, "no transaction is open")
	}
	defer s.endTransaction()
	if s.failure != nil {
		return nil, s.transactionFailed()
	}
	return s.tx.Commit(ctx)
}

func (s *Session) commitStatement(ctx context.Context) Answer {
	appended, err := s.Commit(ctx)
	if err != nil {
		return failed(err)
	}
	if len(appended) == 0 {
		return Answer{Value: value.Null()}
	}
	positions := value.Object{}
	for name, p := range appended {
		positions[name] = value.Array(value.Int(int64(p.First)), value.Int(int64(p.Last)))
	}
	return Answer{Value: value.Fields(value.Object{"appended": value.Fields(positions)})}
}

func (s *Session) cancel() error {
	if s.tx == nil {
		return fault.New(fault.NoTransaction, "no transaction is open")
	}
	s.endTransaction()
	return nil
}

func (s *Session) endTransaction() {
	if s.tx != nil {
		s.tx.Cancel()
	}
	s.tx, s.failure, s.joined = nil, nil, false
}

// inDatabase is the database in use.
func (s *Session) inDatabase() (*store.Database, error) {
	if s.database != nil {
		return s.database, nil
	}
	if s.namespace == "" {
		return nil, errNoNamespace()
	}
	return nil, fault.New(fault.NotFound, "no database is in use; USE DATABASE names one")
}

// inTransaction runs work in the open transaction, or in one of its own that
// runs again until it commits.
func (s *Session) inTransaction(ctx context.Context, work func(tx *store.Tx) (Answer, error)) (Answer, error) {
	if s.tx != nil {
		s.used = true
		return work(s.tx)
	}
	db, err := s.inDatabase()
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	err = Rerun(ctx, func() error {
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Cancel()
		if answer, err = work(tx); err != nil {
			return err
		}
		_, err = tx.Commit(ctx)
		return err
	})
	return answer, err
}

// Append adds a message to a topic when the open transaction commits.
func (s *Session) Append(ctx context.Context, topicName string, key, v value.Value) error {
	return s.inOpen(func(tx *store.Tx) error {
		table, err := tx.Catalog().TopicTable(topicName)
		if err != nil {
			return err
		}
		_, _, err = tx.Append(ctx, table, key, v)
		return err
	})
}

// Put writes a record in the open transaction, whether or not it exists.
func (s *Session) Put(ctx context.Context, tableName string, key, record value.Value) error {
	return s.inOpen(func(tx *store.Tx) error {
		table, err := tx.Catalog().Table(tableName)
		if err != nil {
			return err
		}
		e := &environment{ctx: ctx, store: s.store, params: s.params, limits: s.limits}
		_, err = s.writeRecord(e, table, key, record, tx.Put)
		return err
	})
}

// Read reads messages in the open transaction, for a consumer.
func (s *Session) Read(ctx context.Context, topicName string, options store.ReadOptions) (page store.Page, err error) {
	err = s.inOpen(func(tx *store.Tx) error {
		table, err := tx.Catalog().TopicTable(topicName)
		if err != nil {
			return err
		}
		page, err = tx.Read(ctx, table, options)
		return err
	})
	return page, err
}

// inOpen runs work in the open transaction, which fails with it.
func (s *Session) inOpen(work func(tx *store.Tx) error) error {
	if s.tx == nil {
		return fault.New(fault.NoTransaction, "the transaction has ended")
	}
	if s.failure != nil {
		return s.transactionFailed()
	}
	s.used = true
	err := work(s.tx)
	if err != nil {
		s.failure = fault.Of(err)
	}
	return err
}
