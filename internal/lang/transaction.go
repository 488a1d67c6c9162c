package lang

// Begin is BEGIN: it opens a transaction.
type Begin struct{ node }

// Commit is COMMIT: it makes a transaction lasting.
type Commit struct{ node }

// Cancel is CANCEL: it undoes a transaction.
type Cancel struct{ node }

// Sleep is SLEEP, for scripts and tests.
type Sleep struct {
	node
	Duration Expression
}

func (*Begin) statement()  {}
func (*Commit) statement() {}
func (*Cancel) statement() {}
func (*Sleep) statement()  {}

// String is text that parses to the same statement.
func (s *Begin) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Commit) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Cancel) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Sleep) String() string { return text(s) }

// parseBegin parses the beginning of a transaction.
//
//	begin = "BEGIN"
func (p *parser) parseBegin(start place) Statement {
	p.expect("BEGIN")
	return &Begin{p.span(start)}
}

// parseCommit parses the end of a transaction that lasts.
//
//	commit = "COMMIT"
func (p *parser) parseCommit(start place) Statement {
	p.expect("COMMIT")
	return &Commit{p.span(start)}
}

// parseCancel parses the end of a transaction that leaves no trace.
//
//	cancel = "CANCEL"
func (p *parser) parseCancel(start place) Statement {
	p.expect("CANCEL")
	return &Cancel{p.span(start)}
}

// parseSleep parses a pause of a script.
//
//	sleep = "SLEEP" value
func (p *parser) parseSleep(start place) Statement {
	p.expect("SLEEP")
	s := &Sleep{Duration: p.parseValue("a duration")}
	s.node = p.span(start)
	return s
}

func (*Begin) print(p *printer)  { p.word("BEGIN") }
func (*Commit) print(p *printer) { p.word("COMMIT") }
func (*Cancel) print(p *printer) { p.word("CANCEL") }

func (s *Sleep) print(p *printer) { p.clause("SLEEP", s.Duration) }
