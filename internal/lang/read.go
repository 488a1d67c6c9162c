package lang

// Read is READ FROM a topic.
type Read struct {
	node
	Topic string
	// Consumer is the name of a reader or a group, a string or a parameter;
	// nil where nobody's place moves.
	Consumer Expression
	// After is a position, Since a datetime; at most one of them is given.
	After, Since Expression
	Limit        Expression
	Wait         Expression
}

// Follow is FOLLOW: the topic's messages are pushed as they commit.
type Follow struct {
	node
	Topic string
	After Expression
}

// Settle is a statement with which a worker settles messages that a group
// handed out to it: ACK, NACK, EXTEND, REJECT or RELEASE.
type Settle struct {
	node
	Verb  Verb
	Topic string
	// Group is a string or a parameter.
	Group Expression
	// At names at least one message.
	At []Delivery
	// Delay may be given with Nack, By with Extend, Reason with Reject.
	Delay, By, Reason Expression
}

// Verb is what a worker says of messages.
type Verb string

// The verbs of Settle.
const (
	Ack     Verb = "ACK"
	Nack    Verb = "NACK"
	Extend  Verb = "EXTEND"
	Reject  Verb = "REJECT"
	Release Verb = "RELEASE"
)

// Delivery is one message that a worker settles.
type Delivery struct {
	Position Expression
	// Delivery is which hand-out of the message is meant; nil for whichever.
	Delivery Expression
}

func (*Read) statement()   {}
func (*Follow) statement() {}
func (*Settle) statement() {}

// String is text that parses to the same statement.
func (s *Read) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Follow) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Settle) String() string { return text(s) }

// parseRead parses a read of a topic.
//
//	read        = "READ" "FROM" name { read clause }
//	read clause = "FOR" "CONSUMER" quoted | "AFTER" value | "SINCE" value | "LIMIT" value | "WAIT" value
func (p *parser) parseRead(start place) Statement {
	p.expect("READ", "FROM")
	s := &Read{Topic: p.parseName("a topic")}
	since := words("SINCE", func() { s.Since = p.parseValue("a datetime") })
	since.name = "AFTER or SINCE"
	after := words("AFTER", func() { s.After = p.parseValue("a position") })
	after.name = since.name
	p.parseClauses(
		words("FOR CONSUMER", func() { s.Consumer = p.parseQuoted("the name of a consumer") }),
		after,
		since,
		words("LIMIT", func() { s.Limit = p.parseValue("a number of messages") }),
		words("WAIT", func() { s.Wait = p.parseValue("a duration") }),
	)
	s.node = p.span(start)
	return s
}

// parseFollow parses a subscription to a topic.
//
//	follow = "FOLLOW" name [ "AFTER" value ]
func (p *parser) parseFollow(start place) Statement {
	p.expect("FOLLOW")
	s := &Follow{Topic: p.parseName("a topic")}
	p.parseClauses(words("AFTER", func() { s.After = p.parseValue("a position") }))
	s.node = p.span(start)
	return s
}

// parseSettle parses what a worker says of messages.
//
//	settle   = verb name "FOR" "CONSUMER" quoted "AT" delivery { "," delivery }
//	           [ "DELAY" value ] [ "BY" value ] [ "REASON" value ]   after NACK, EXTEND and REJECT
//	verb     = "ACK" | "NACK" | "EXTEND" | "REJECT" | "RELEASE"
//	delivery = value [ "DELIVERY" value ]
func (p *parser) parseSettle(start place) Statement {
	s := &Settle{}
	for _, verb := range []Verb{Ack, Nack, Extend, Reject, Release} {
		if p.accept(string(verb)) {
			s.Verb = verb
			break
		}
	}
	s.Topic = p.parseName("a topic")
	p.expect("FOR", "CONSUMER")
	s.Group = p.parseQuoted("the name of a group")
	p.expect("AT")
	s.At = []Delivery{p.parseDelivery()}
	for p.acceptSign(",") {
		s.At = append(s.At, p.parseDelivery())
	}
	expected := []string{"','", "DELIVERY"}
	switch s.Verb {
	case Nack:
		s.Delay = p.parseTail("DELAY", "a duration", &expected)
	case Extend:
		s.By = p.parseTail("BY", "a duration", &expected)
	case Reject:
		s.Reason = p.parseTail("REASON", "a reason in quotes", &expected)
	}
	p.expectEnd(expected...)
	s.node = p.span(start)
	return s
}

func (p *parser) parseDelivery() Delivery {
	d := Delivery{Position: p.parseValue("a position")}
	if p.accept("DELIVERY") {
		d.Delivery = p.parseValue("a number of deliveries")
	}
	return d
}

// parseTail parses a clause that a statement may end with. Expected becomes
// what can follow where the statement does not end.
func (p *parser) parseTail(keyword, what string, expected *[]string) Expression {
	if !p.accept(keyword) {
		*expected = append(*expected, keyword)
		return nil
	}
	*expected = nil
	return p.parseValue(what)
}

func (s *Read) print(p *printer) {
	p.word("READ FROM")
	p.name(s.Topic)
	p.clause("FOR CONSUMER", s.Consumer)
	p.clause("AFTER", s.After)
	p.clause("SINCE", s.Since)
	p.clause("LIMIT", s.Limit)
	p.clause("WAIT", s.Wait)
}

func (s *Follow) print(p *printer) {
	p.word("FOLLOW")
	p.name(s.Topic)
	p.clause("AFTER", s.After)
}

func (s *Settle) print(p *printer) {
	p.word(string(s.Verb))
	p.name(s.Topic)
	p.clause("FOR CONSUMER", s.Group)
	p.word("AT")
	list(p, s.At, func(d Delivery) {
		p.value(d.Position)
		p.clause("DELIVERY", d.Delivery)
	})
	p.clause("DELAY", s.Delay)
	p.clause("BY", s.By)
	p.clause("REASON", s.Reason)
}
