package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Host is a transaction on the engine's PostgreSQL that somebody else opened
// and will end.
type Host interface {
	// Query runs a statement, whose parameters are written $1, $2, and calls
	// row, if it is not nil, with each row of the answer. It returns the first
	// error of either; an error of the server has a method SQLState.
	Query(ctx context.Context, statement string, arguments []any, row func(scan func(into ...any) error) error) error
}

// Join makes commits of spaces part of a host's transaction: they are durable,
// and seen by others, when the host commits, and leave no trace when it does
// not. It is used by one goroutine, as its host is.
//
// A commit in a host goes like one of the engine's own (see space.go), with
// three differences:
//
//   - The space's row stays held until the host's transaction ends, so the
//     engine's other commits wait for it. PostgreSQL ends a host that holds the
//     row and says nothing for Options.HoldTimeout.
//   - Nothing of it is published here. That the sequence has moved is learned
//     as if another process had committed, which may also never happen.
//   - Whose transaction it is has to be found out: while it holds the row, a
//     connection of the engine's own must find the row held, and the host must
//     see the newest commit that this connection sees. A transaction on another
//     PostgreSQL fails the first; one whose snapshot is older than the newest
//     commit (REPEATABLE READ and above) fails the second.
//
// The row is held for few round trips: what comes before it is taken is done
// first, what is written goes in one with the savepoint's end (see Done).
//
// What a join does stands after a savepoint. When it fails, Undo leaves the
// host as it was before, and able to go on.
type Join struct {
	engine *Engine
	host   Host
	// fixed says that all statements of the host see one snapshot.
	fixed bool
	// settings are what the host's settings were, by name.
	settings map[string]string
	// writes are what commits since Begin left to be sent by Done.
	writes []hostStatement
}

// hostStatement is a statement for a host, and what is done with its rows.
type hostStatement struct {
	text      string
	arguments []any
	row       func(scan scanner) error
}

// pipeline is a host that sends several statements in one round trip. The
// others are asked for one after the other.
type pipeline interface {
	queryAll(ctx context.Context, statements []hostStatement) error
}

// joinSettings are what commits in a host rely on, as prepareSession sets it
// for the engine's own connections. The host has those of kept until its end,
// and the others back after each commit.
var joinSettings = []struct {
	name string
	kept bool
	// value is what it is set to, given what it is.
	value func(was string, o Options) string
}{
	{name: "synchronous_commit", kept: true, value: func(was string, _ Options) string {
		if was == "off" {
			return "local"
		}
		return was
	}},
	{name: "idle_in_transaction_session_timeout", kept: true, value: func(was string, o Options) string {
		// PostgreSQL writes minutes as min, which Go does not parse; those are
		// longer than any HoldTimeout that makes sense.
		if d, err := time.ParseDuration(was); err == nil && d > 0 && d < o.HoldTimeout {
			return was
		}
		return milliseconds(o.HoldTimeout)
	}},
	{name: "lock_timeout", value: func(_ string, o Options) string { return milliseconds(o.Patience) }},
	{name: "enable_seqscan", value: off},
	{name: "enable_bitmapscan", value: off},
	{name: "enable_hashjoin", value: off},
	{name: "enable_mergejoin", value: off},
}

func off(string, Options) string { return "off" }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", max(1, d.Milliseconds())) }

// Join joins a host's transaction. It fails with fault.NoTransaction where that
// has ended, fault.TransactionFailed where PostgreSQL takes nothing but
// ROLLBACK of it, and fault.InvalidClause where it is not one of this store.
func (e *Engine) Join(ctx context.Context, host Host) (*Join, error) {
	j := &Join{engine: e, host: host, settings: map[string]string{}}
	version, isolation, readOnly := 0, "", ""
	was := make([]string, len(joinSettings))
	into := []any{&version, &isolation, &readOnly}
	columns := []string{"version", "current_setting('transaction_isolation')", "current_setting('transaction_read_only')"}
	for i, setting := range joinSettings {
		// A server that does not know a setting does without.
		columns = append(columns, "coalesce(current_setting('"+setting.name+"', true), '')")
		into = append(into, &was[i])
	}
	found := false
	look := `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + e.versionTable() + ` WHERE singleton = 1`
	err := j.query(ctx, look, nil, func(scan scanner) error {
		found = true
		return scan(into...)
	})
	switch {
	case err != nil:
		return nil, j.explain("join a transaction", err)
	case !found:
		return nil, errElsewhere(e.options.Schema, nil)
	case version != schemaVersion:
		return nil, fault.New(fault.Unavailable, "the tables in the schema %s are of version %d, and this process works with version %d",
			e.options.Schema, version, schemaVersion)
	case readOnly == "on":
		return nil, fault.New(fault.InvalidClause, "the transaction to join is read-only; begin one that may write")
	}
	j.fixed = isolation != "read committed" && isolation != "read uncommitted"
	for i, setting := range joinSettings {
		j.settings[setting.name] = was[i]
	}
	return j, nil
}

// errElsewhere is of a host that is not a transaction of this store.
func errElsewhere(schema string, cause error) error {
	const text = "the transaction to join is not on this store's PostgreSQL, or does not see its schema %s"
	if cause == nil {
		return fault.New(fault.InvalidClause, text, schema)
	}
	return fault.New(fault.InvalidClause, text+": %w", schema, cause)
}

// Fixed reports whether the host sees one snapshot until it ends (REPEATABLE
// READ and above), so that after a conflict only the whole transaction can be
// run again.
func (j *Join) Fixed() bool { return j.fixed }

// savepoint is the name of where a join begins. The same name inside another
// join hides the outer one until it is released.
const savepoint = "tidemark"

// Begin marks where Undo goes back to.
func (j *Join) Begin(ctx context.Context) error {
	j.writes = nil
	return j.explain("begin", j.query(ctx, `SAVEPOINT `+savepoint, nil, nil))
}

// Done writes what was committed since Begin and leaves it to the host's
// transaction.
func (j *Join) Done(ctx context.Context) error {
	defer func() { j.writes = nil }()
	j.writes = append(j.writes, hostStatement{text: `RELEASE SAVEPOINT ` + savepoint})
	return j.explain("write", j.queryAll(ctx, j.writes))
}

// Undo takes back all that was done in the host's transaction since Begin.
func (j *Join) Undo(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := j.query(ctx, `ROLLBACK TO SAVEPOINT `+savepoint, nil, nil)
	if err == nil {
		err = j.query(ctx, `RELEASE SAVEPOINT `+savepoint, nil, nil)
	}
	return j.explain("roll back", err)
}

// Snapshot returns the newest state of a space that the host may see. Where the
// host committed to the space before (own), that is what it sees itself, which
// does not move, since it holds the row.
func (j *Join) Snapshot(ctx context.Context, in engine.Space) (snapshot engine.Snapshot, own bool, err error) {
	s, err := j.space(in)
	if err != nil {
		return nil, false, err
	}
	var seen int64
	var mark uuid.UUID
	err = j.query(ctx, j.statements().newestMark, []any{int32(s.id)}, func(scan scanner) error { return scan(&seen, &mark) })
	if err != nil {
		return nil, false, j.explain("look at the newest commit", err)
	}
	// In this order: what anybody else committed that the host sees is in the
	// snapshot too.
	snapshot, err = in.Snapshot(ctx)
	if err != nil || engine.Sequence(seen) <= snapshot.Sequence() {
		return snapshot, false, err
	}
	snapshot.Release()
	return hostSnapshot{j.reader(s, engine.Sequence(seen))}, true, nil
}

// hostSnapshot is the state of a space that a host sees.
type hostSnapshot struct{ *reader }

func (hostSnapshot) Release() {}

func (j *Join) reader(s *space, sequence engine.Sequence) *reader {
	return &reader{from: j, space: s.id, sequence: sequence, enter: func() error { return nil }, leave: func() {}}
}

func (j *Join) space(in engine.Space) (*space, error) {
	s, ok := in.(*space)
	if !ok || s.engine != j.engine {
		return nil, fault.New(fault.Internal, "a space of another engine was to join a transaction")
	}
	return s, nil
}

// Commit runs form alone among all commits of the space; Done writes, in the
// host's transaction, what it wrote. It returns fault.Conflict where the host's
// snapshot is older than the newest commit.
func (j *Join) Commit(ctx context.Context, in engine.Space, form func(engine.Commit) error) error {
	s, err := j.space(in)
	if err != nil {
		return err
	}
	e := j.engine
	if !e.gate.enter() {
		return errClosed()
	}
	defer e.gate.leave()
	if e.forked.Load() {
		return errForked()
	}
	if len(j.writes) > 0 {
		return fault.New(fault.Internal, "a second commit of one join")
	}
	found, err := j.hold(ctx, s)
	if err != nil {
		return err
	}
	c := &commit{reader: *j.reader(s, found.sequence), now: e.clock.at(e.machineTime(found.machine), found.committed)}
	// While others wait for the row, it is looked at beside the form.
	looked := make(chan error, 1)
	var seen beside
	go func() {
		var err error
		seen, err = s.lookBeside(ctx)
		looked <- err
	}()
	refused := form(c)
	if err := <-looked; err != nil {
		return err
	}
	if err := j.check(ctx, s, found, seen); err != nil {
		return err
	}
	if refused == nil {
		refused = c.refused
	}
	if refused != nil {
		return refused
	}
	j.writes = j.written(s, c)
	return nil
}

// set is the statement that sets what a commit relies on, or sets it back to
// what it was.
func (j *Join) set(back bool) hostStatement {
	calls := []string{"1"}
	var values []any
	for _, setting := range joinSettings {
		was := j.settings[setting.name]
		if was == "" || back && setting.kept {
			continue
		}
		value := was
		if !back {
			value = setting.value(was, j.engine.options)
		}
		values = append(values, value)
		calls = append(calls, fmt.Sprintf("set_config('%s', $%d, true)", setting.name, len(values)))
	}
	return hostStatement{text: `SELECT ` + strings.Join(calls, ", "), arguments: values}
}

// foundState is what a host that holds a space's row sees.
type foundState struct {
	point
	// there says that the host sees the row.
	there              bool
	machine, committed time.Time
}

// hold takes the space's row for the host and looks at the newest state.
func (j *Join) hold(ctx context.Context, s *space) (foundState, error) {
	var found foundState
	dropped := false
	sql := j.statements()
	err := j.queryAll(ctx, []hostStatement{
		j.set(false),
		{sql.lock, []any{int32(s.id)}, func(scan scanner) error {
			found.there = true
			return scan(&dropped)
		}},
		{sql.latest, []any{int32(s.id), int64(0)}, func(scan scanner) (err error) {
			found.point, found.machine, found.committed, err = scanLatest(scan)
			return err
		}},
	})
	if err == nil && dropped {
		err = s.errDropped()
	}
	return found, j.explain("take the database's row", err)
}

func scanLatest(scan scanner) (latest point, machine, committed time.Time, err error) {
	var sequence sql.NullInt64
	var mark, ofKnown uuid.NullUUID
	var at sql.NullTime
	err = scan(&machine, &sequence, &mark, &at, &ofKnown)
	return point{sequence: engine.Sequence(sequence.Int64), mark: mark.UUID}, machine, at.Time, err
}

// beside is what a connection of the engine's own sees while a host holds, or
// does not hold, a space's row.
type beside struct {
	newest point
	// free says that nobody holds the row.
	free bool
}

func (s *space) lookBeside(ctx context.Context) (seen beside, err error) {
	e := s.engine
	err = e.persist(ctx, "look at the newest commit", func(ctx context.Context) error {
		seen = beside{}
		batch := &pgx.Batch{}
		batch.Queue(e.sql.lockFree, int32(s.id)).Query(func(rows pgx.Rows) error {
			seen.free = rows.Next()
			rows.Close()
			return rows.Err()
		})
		batch.Queue(e.sql.newestMark, int32(s.id)).Query(func(rows pgx.Rows) error {
			var sequence int64
			_, err := pgx.ForEachRow(rows, []any{&sequence, &seen.newest.mark}, func() error {
				seen.newest.sequence = engine.Sequence(sequence)
				return nil
			})
			return err
		})
		return e.onConnection(ctx, func(conn *pgxpool.Conn) error { return conn.SendBatch(ctx, batch).Close() })
	})
	return seen, err
}

// check makes sure that the row which the host holds is that of this store, and
// that the host sees the newest commit.
func (j *Join) check(ctx context.Context, s *space, found foundState, seen beside) error {
	if seen.free {
		return errElsewhere(j.engine.options.Schema, nil)
	}
	mark := found.mark
	if found.sequence > seen.newest.sequence {
		// The host has committed to the space before; what came before that?
		mark = uuid.UUID{}
		err := j.query(ctx, j.statements().commitMark, []any{int32(s.id), int64(seen.newest.sequence)}, func(scan scanner) error { return scan(&mark) })
		if err != nil {
			return j.explain("read a commit", err)
		}
	}
	switch {
	case found.there && found.sequence >= seen.newest.sequence && mark == seen.newest.mark:
		return nil
	case j.fixed:
		return fault.New(fault.Conflict,
			"the transaction's snapshot is older than commit %d of the database; run the whole transaction again", seen.newest.sequence)
	}
	return errElsewhere(j.engine.options.Schema, nil)
}

// written are the statements that write what a form wrote, and the commit's own
// row, and set back what hold set.
func (j *Join) written(s *space, c *commit) []hostStatement {
	batch := &pgx.Batch{}
	if len(c.writes) > 0 {
		made := point{sequence: c.sequence + 1, mark: uuid.New()}
		c.changes().queue(batch, j.statements(), s.id, made.sequence)
		batch.Queue(j.statements().record, int32(s.id), int64(made.sequence), c.now, markOf(made))
		if isTimeToForget(c.sequence) {
			batch.Queue(j.statements().forget, s.forgetArguments(c.sequence, c.now)...)
		}
	}
	statements := make([]hostStatement, 0, len(batch.QueuedQueries)+2)
	for _, queued := range batch.QueuedQueries {
		statements = append(statements, hostStatement{text: queued.SQL, arguments: queued.Arguments})
	}
	return append(statements, j.set(true))
}

// queryAll runs statements, in one round trip where the host can.
func (j *Join) queryAll(ctx context.Context, statements []hostStatement) error {
	if host, ok := j.host.(pipeline); ok {
		return host.queryAll(ctx, statements)
	}
	for _, statement := range statements {
		if err := j.query(ctx, statement.text, statement.arguments, statement.row); err != nil {
			return err
		}
	}
	return nil
}

// query makes the host a source of reads.
func (j *Join) query(ctx context.Context, statement string, arguments []any, row func(scan scanner) error) error {
	err := j.host.Query(ctx, statement, arguments, row)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (j *Join) statements() *statements { return &j.engine.sql }

// explain gives an error of the host's PostgreSQL the kind that callers know.
func (j *Join) explain(doing string, err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	state := sqlState(err)
	switch {
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone), errors.Is(err, sql.ErrConnDone), state == stateNoTransaction:
		return fault.New(fault.NoTransaction, "the transaction to join has ended: %w", err)
	case state == stateFailedTransaction:
		return fault.New(fault.TransactionFailed, "a statement of the transaction to join failed before; roll it back: %w", err)
	case strings.HasPrefix(state, classRollback), state == stateUniqueViolation:
		return fault.New(fault.Conflict, "the transaction lost to another; run the whole of it again: %w", err)
	case state == stateUndefinedTable, state == stateInvalidSchema, state == stateUndefinedColumn:
		return errElsewhere(j.engine.options.Schema, err)
	case state == stateNoPrivilege:
		return fault.New(fault.NotAllowed, "the transaction's user may not use the tables in the schema %s: %w", j.engine.options.Schema, err)
	case state == stateReadOnly:
		return fault.New(fault.InvalidClause, "the transaction to join may not write: %w", err)
	case errors.Is(err, context.DeadlineExceeded), state == stateQueryCancelled:
		return fault.New(fault.Timeout, "the time for the call has passed: cannot %s: %w", doing, err)
	case errors.Is(err, context.Canceled):
		return fault.New(fault.Cancelled, "the caller gave up: %w", err)
	}
	return unavailable(doing+" in the transaction that was joined", err)
}
