package client

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// remote carries the API over the wire.
type remote struct {
	nodes *nodes
	close context.CancelFunc

	mu sync.Mutex
	// databases are protected by mu: by namespace and name.
	databases map[[2]string]*remoteDatabase
}

// connect looks for a node that answers.
func connect(ctx context.Context, addresses string, options Options) (*remote, error) {
	closed, end := context.WithCancel(context.Background())
	n, err := newNodes(closed, addresses, options)
	if err != nil {
		end()
		return nil, err
	}
	s, err := n.dial(ctx, "", "")
	if err != nil {
		end()
		return nil, err
	}
	s.abort()
	return &remote{nodes: n, close: end, databases: map[[2]string]*remoteDatabase{}}, nil
}

// Close ends all sessions.
func (r *remote) Close() error {
	r.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, db := range r.databases {
		db.pool.close()
		db.appends.close()
	}
	return nil
}

// Database opens a database. Only where it is missing does it define it, which
// not every user may.
func (r *remote) Database(ctx context.Context, namespace, name string) (BackendDatabase, error) {
	r.mu.Lock()
	db := r.databases[[2]string{namespace, name}]
	if db == nil {
		p := newPool(r.nodes, namespace, name)
		db = &remoteDatabase{pool: p, appends: newAppends(p)}
		r.databases[[2]string{namespace, name}] = db
	}
	r.mu.Unlock()
	s, err := db.pool.take(ctx)
	if errors.Is(err, fault.NotFound) {
		if err = r.define(ctx, namespace, name); err == nil {
			s, err = db.pool.take(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	db.pool.give(s)
	return db, nil
}

// define defines a namespace and a database in it.
func (r *remote) define(ctx context.Context, namespace, name string) error {
	s, err := r.nodes.dial(ctx, "", "")
	if err != nil {
		return err
	}
	defer s.abort()
	n, d := value.QuoteIdentifier(namespace), value.QuoteIdentifier(name)
	answers, err := s.Run(ctx, "DEFINE NAMESPACE IF NOT EXISTS "+n+"; USE NAMESPACE "+n+"; DEFINE DATABASE IF NOT EXISTS "+d, nil)
	return firstFailure(answers, err)
}

// remoteDatabase is a database on nodes.
type remoteDatabase struct {
	pool    *pool
	appends *appends
}

// again runs a request that may safely be sent twice, until a node has answered
// it or the patience is over.
func (db *remoteDatabase) again(ctx context.Context, request func(s *Session) error) error {
	return db.againIf(ctx, nodeWasLost, request)
}

// againIf runs a request again after those errors for which that is safe.
func (db *remoteDatabase) againIf(ctx context.Context, safe func(error) bool, request func(s *Session) error) error {
	began := time.Now()
	pause := pauses{}
	for {
		err := db.once(ctx, request)
		if !safe(err) || time.Since(began) > db.pool.nodes.patience {
			return err
		}
		if stop := pause.take(ctx, db.pool.nodes.closed); stop != nil {
			return stop
		}
	}
}

// once runs a request on a session of the pool.
func (db *remoteDatabase) once(ctx context.Context, request func(s *Session) error) error {
	s, err := db.pool.take(ctx)
	if err != nil {
		return err
	}
	err = request(s)
	db.finish(s, err)
	return err
}

// finish gives a session back, if what it ran has ended with it as it was.
func (db *remoteDatabase) finish(s *Session, err error) {
	if nodeWasLost(err) {
		db.pool.nodes.failed(s.node, err)
	}
	if nodeWasLost(err) || errors.Is(err, fault.Cancelled) || s.Ended() != nil {
		db.pool.drop(s)
		return
	}
	db.pool.give(s)
}

// run sends statements. A node that cannot do them now is as one that is lost.
func (s *Session) run(ctx context.Context, script string, params map[string]value.Value) ([]Answer, error) {
	return s.runRequest(ctx, request{sql: script, params: params})
}

func (s *Session) runRequest(ctx context.Context, r request) ([]Answer, error) {
	r.headers = headersOf(ctx)
	answers, err := s.start(r).Wait(ctx)
	if err != nil {
		return nil, err
	}
	for i, answer := range answers {
		if answer.Err != nil && answer.Err.Kind == fault.Unavailable {
			if len(answers) == 1 {
				return nil, lost(answer.Err, refusedWhole(answer.Err))
			}
			answers[i].Err = fault.Of(lost(answer.Err, false))
		}
	}
	if len(answers) == 1 && answers[0].Err != nil && answers[0].Err.Kind == fault.Syntax {
		return nil, answers[0].Err
	}
	return answers, nil
}

// shuttingDown begins the refusal of a node that shuts down, which began nothing
// of what it refuses.
const shuttingDown = "the node is shutting down"

func refusedWhole(err *fault.Error) bool { return strings.HasPrefix(err.Message, shuttingDown) }

// firstFailure is the error of a request or of its first statement that failed.
func firstFailure(answers []Answer, err error) error {
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if answer.Err != nil {
			return answer.Err
		}
	}
	return nil
}

// one runs one statement and returns its answer.
func (s *Session) one(ctx context.Context, statement string, params map[string]value.Value) (Answer, error) {
	answers, err := s.run(ctx, statement, params)
	return onlyAnswer(answers, err)
}

func onlyAnswer(answers []Answer, err error) (Answer, error) {
	if err := firstFailure(answers, err); err != nil {
		return Answer{}, err
	}
	if len(answers) != 1 {
		return Answer{}, fault.New(fault.Internal, "the node gave %d answers to one statement", len(answers))
	}
	return answers[0], nil
}

// Run runs a script. It is sent again where it did not reach a node, or only
// reads.
func (db *remoteDatabase) Run(ctx context.Context, script string, params map[string]value.Value) (answers []Answer, err error) {
	request := func(s *Session) error {
		answers, err = s.run(ctx, script, params)
		if changesSession.MatchString(script) {
			// The next who is lent a session must not find this one's
			// transaction, or another database in use.
			s.end(errSpent)
		}
		return err
	}
	safe := neverRan
	if onlyReads.MatchString(script) {
		safe = nodeWasLost
	}
	err = db.againIf(ctx, safe, request)
	return answers, err
}

var errSpent = fault.New(fault.Cancelled, "the session is not used again")

var (
	// changesSession matches whatever might change a session: also what does
	// not, such as a string that has one of the words.
	changesSession = regexp.MustCompile(`(?i)\b(use|begin)\b`)
	// onlyReads matches one statement that writes nothing. It misses some.
	onlyReads = regexp.MustCompile(`(?i)^\s*(select|info)\b[^;]*;?\s*$`)
)

// maxWait is how long one READ waits at the node; the next goes on.
const maxWait = 20 * time.Second

// Read reads. For a group, messages that were handed out in an answer which was
// lost come again at their deadline.
func (db *remoteDatabase) Read(ctx context.Context, topic string, request ReadRequest) (page Page, err error) {
	until := time.Now().Add(request.Wait)
	for {
		request.Wait = min(max(0, time.Until(until)), maxWait)
		err = db.again(ctx, func(s *Session) error {
			page, err = s.read(ctx, topic, request)
			return err
		})
		if err != nil || len(page.Messages) > 0 || page.Lapsed > 0 || !time.Now().Before(until) {
			return page, err
		}
	}
}

func (s *Session) read(ctx context.Context, topic string, asked ReadRequest) (Page, error) {
	statement, params := readStatement(topic, asked)
	answers, err := s.runRequest(ctx, request{sql: statement, params: params, page: true})
	answer, err := onlyAnswer(answers, err)
	return answer.page(), err
}

func readStatement(topic string, request ReadRequest) (statement string, params map[string]value.Value) {
	statement, params = "READ FROM "+value.QuoteIdentifier(topic), map[string]value.Value{}
	if request.Consumer != "" {
		statement += " FOR CONSUMER $consumer"
		params["consumer"] = value.String(request.Consumer)
	} else {
		statement += " AFTER $after"
		params["after"] = value.Int(int64(request.After))
	}
	if request.Limit > 0 {
		statement += " LIMIT $limit"
		params["limit"] = value.Int(int64(request.Limit))
	}
	if request.Wait > 0 {
		statement += " WAIT $wait"
		params["wait"] = value.Duration(request.Wait)
	}
	return statement, params
}

// Settle settles. Each message is named with its hand-out, so that what is sent
// twice settles nothing of another's.
func (db *remoteDatabase) Settle(ctx context.Context, topic, group string, settlement Settlement) (count int, err error) {
	statement, params := settleStatement(topic, group, settlement)
	err = db.again(ctx, func(s *Session) error {
		answer, err := s.one(ctx, statement, params)
		settled, _ := answer.Value.AsInt()
		count = int(settled)
		return err
	})
	return count, err
}

func settleStatement(topic, group string, settlement Settlement) (statement string, params map[string]value.Value) {
	var b strings.Builder
	b.WriteString(string(settlement.Verb) + " " + value.QuoteIdentifier(topic) + " FOR CONSUMER $group AT ")
	params = map[string]value.Value{"group": value.String(group)}
	for i, m := range settlement.Messages {
		if i > 0 {
			b.WriteString(", ")
		}
		position, delivery := "p"+strconv.Itoa(i), "d"+strconv.Itoa(i)
		b.WriteString("$" + position + " DELIVERY $" + delivery)
		params[position] = value.Int(int64(m.Position()))
		params[delivery] = value.Int(int64(m.Deliveries()))
	}
	switch {
	case settlement.Delay != nil:
		b.WriteString(" DELAY $delay")
		params["delay"] = value.Duration(*settlement.Delay)
	case settlement.By != 0:
		b.WriteString(" BY $by")
		params["by"] = value.Duration(settlement.By)
	case settlement.Verb == VerbReject && settlement.Reason != "":
		b.WriteString(" REASON $reason")
		params["reason"] = value.String(settlement.Reason)
	}
	return b.String(), params
}

// followWindow is how many messages a node may push ahead of who follows.
const followWindow = 1000

// Follow follows, on a session of its own, and on another when that is lost.
func (db *remoteDatabase) Follow(ctx context.Context, topic string, after *uint64, handle func(Page) error) error {
	pause := pauses{}
	for {
		err := db.once(ctx, func(s *Session) error {
			from, err := s.followFrom(ctx, topic, after, func(page Page) error {
				pause = pauses{}
				return handle(page)
			})
			after = from
			// The node may have pushed more than was taken.
			s.end(errSpent)
			return err
		})
		if !nodeWasLost(err) {
			return err
		}
		db.pool.nodes.log.Warn("a node was lost while it was followed; the following goes on", "topic", topic, "error", err)
		if err := pause.take(ctx, db.pool.nodes.closed); err != nil {
			return err
		}
	}
}

// followFrom follows until the session is lost, and returns from where to go on.
func (s *Session) followFrom(ctx context.Context, topic string, after *uint64, handle func(Page) error) (from *uint64, err error) {
	statement, params := "FOLLOW "+value.QuoteIdentifier(topic), map[string]value.Value{}
	if after != nil {
		statement += " AFTER $after"
		params["after"] = value.Int(int64(*after))
	}
	subscription, err := s.Follow(ctx, statement, params, followWindow)
	if err != nil {
		return after, interrupted(err)
	}
	defer subscription.Close()
	place := uint64(subscription.After)
	for {
		page, err := subscription.Next(ctx)
		if err != nil {
			return &place, interrupted(err)
		}
		place += page.Lapsed
		if n := len(page.Messages); n > 0 {
			place = page.Messages[n-1].Position()
		}
		if err := handle(page); err != nil {
			return &place, err
		}
	}
}
