package lang

// Kind is the words that name a kind of thing in statements.
type Kind string

// The kinds of things. The plurals list.
const (
	Store          Kind = "STORE"
	Namespace      Kind = "NAMESPACE"
	Database       Kind = "DATABASE"
	Collection     Kind = "COLLECTION"
	Table          Kind = "TABLE"
	Space          Kind = "SPACE"
	Topic          Kind = "TOPIC"
	TopicConsumer  Kind = "TOPIC CONSUMER"
	TopicConsumers Kind = "TOPIC CONSUMERS"
	KafkaConsumer  Kind = "KAFKA CONSUMER"
	KafkaConsumers Kind = "KAFKA CONSUMERS"
)

// production is a way in which a statement goes on after a word.
type production struct {
	word  string
	parse func(p *parser, start place) Statement
}

// statements are the productions by the word that begins a statement. It is
// filled by init, since one of them, a SELECT in parentheses, leads back here.
var statements []production

func init() {
	statements = []production{
		{"CREATE", (*parser).parseCreate},
		{"READ", (*parser).parseRead},
		{"ACK", (*parser).parseSettle},
		{"SELECT", func(p *parser, start place) Statement { return p.parseSelect(start) }},
		{"INSERT", (*parser).parseInsert},
		{"UPSERT", (*parser).parseUpsert},
		{"UPDATE", (*parser).parseUpdate},
		{"DELETE", (*parser).parseDelete},
		{"BEGIN", (*parser).parseBegin},
		{"COMMIT", (*parser).parseCommit},
		{"CANCEL", (*parser).parseCancel},
		{"NACK", (*parser).parseSettle},
		{"EXTEND", (*parser).parseSettle},
		{"REJECT", (*parser).parseSettle},
		{"RELEASE", (*parser).parseSettle},
		{"FOLLOW", (*parser).parseFollow},
		{"USE", (*parser).parseUse},
		{"DEFINE", (*parser).parseDefine},
		{"ALTER", (*parser).parseAlter},
		{"DROP", (*parser).parseDrop},
		{"GRANT", (*parser).parseGrant},
		{"REVOKE", (*parser).parseRevoke},
		{"INFO", (*parser).parseInfo},
		{"SLEEP", (*parser).parseSleep},
	}
}

const expectedStatement = "a statement: ACK, ALTER, BEGIN, CANCEL, COMMIT, CREATE, DEFINE, DELETE, DROP, EXTEND, FOLLOW, " +
	"GRANT, INFO, INSERT, NACK, READ, REJECT, RELEASE, REVOKE, SELECT, SLEEP, UPDATE, UPSERT or USE"

// parseScript parses a whole script. The last statement may leave out its
// semicolon, and a semicolon may stand alone.
//
//	script    = [ statement ] { ";" [ statement ] }
//	statement = create | insert | upsert | update | delete | select | begin | commit | cancel | sleep
//	          | define | alter | drop | use | info | read | follow | settle | grant | revoke
func (p *parser) parseScript() []Statement {
	var all []Statement
	for {
		for p.acceptSign(";") {
		}
		if p.current().kind == tokenEnd {
			return all
		}
		all = append(all, p.choose(statements, p.begin(), expectedStatement))
		if !p.atEnd() {
			p.fail("';'")
		}
	}
}

// choose parses with the production whose word comes next, which is not
// consumed. Where there is none, expected says what could have come.
func (p *parser) choose(productions []production, start place, expected string) Statement {
	t := p.current()
	for i := range productions {
		if p.is(t, productions[i].word) {
			return productions[i].parse(p, start)
		}
	}
	p.fail(expected)
	return nil
}

// expectEnd ends the parse unless the statement ends here; expected names what
// else could follow. A SELECT in parentheses ends there.
func (p *parser) expectEnd(expected ...string) {
	if !p.atEnd() && !p.isSign(p.current(), ")") {
		p.fail(append(expected, "';'")...)
	}
}
