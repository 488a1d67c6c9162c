package schema_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// payments is the module of the documentation, with every clause there is.
const payments = `module payments {
  export topic payins payments.PayinEvent {
    +retain 7d12h
    +retainBytes 1000000
  }
  topic payinsGivenUp payments.PayinEvent
  topic receipts payments.Receipt
  subscription paymentProcessing payments.payins {
    +fromLatest
    +parallel 8
  }
  subscription receiptWriting payments.payins

  data Line {
    amount Int
    "line-no" Int
  }
  data PayinEvent {
    at Time
    id String
    lines [payments.Line]
    note String?
    tags {String: [Any?]}
  }
  data PayinRequest {}
  data Receipt {
    image Bytes
    paid Bool
    share Float
  }

  verb payin(payments.PayinRequest) {Int: String} {
    +ingress http POST /payment
    +publish payments.payins
    +publish payments.receipts
  }
  verb ping()
  verb recoverPayin(ftl.CatchRequest<payments.PayinEvent>)
  sink processPayin(payments.PayinEvent) {
    +subscribe paymentProcessing
    +retry 5 1s 1m catch payments.recoverPayin
    +deadletter payments.payinsGivenUp
  }
  mapper toReceipt(payments.PayinEvent) payments.Receipt {
    +map receiptWriting payments.receipts
    +retry 0
    +publish payments.payinsGivenUp
  }
}
`

func parse(t *testing.T, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Parse(text)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	return s
}

func TestATextParsesBackToItself(t *testing.T) {
	s := parse(t, payments)
	if got := s.String(); got != payments {
		t.Fatalf("printed\n%s\nwant\n%s", got, payments)
	}
	if again := parse(t, s.String()); !reflect.DeepEqual(again, s) {
		t.Fatalf("parsed back to something else:\n%s", again)
	}
	if problems := s.Problems(); problems != nil {
		t.Fatalf("the module has problems: %v", problems)
	}
}

func TestInsideItsModuleANameMayBeWrittenWithoutTheModule(t *testing.T) {
	s := parse(t, strings.ReplaceAll(payments, "payments.", ""))
	if got := s.String(); got != payments {
		t.Fatalf("printed\n%s\nwant\n%s", got, payments)
	}
}

func TestAHashIsThatOfTheDeclarationsInWhateverOrder(t *testing.T) {
	one := parse(t, "module m { topic a String  topic b Int  data D { x Int y Int } }").Modules[0]
	same := parse(t, "module m { data D { y Int x Int } topic b Int topic a String }").Modules[0]
	other := parse(t, "module m { topic a String  topic b Int  data D { x Int y Int? } }").Modules[0]
	if one.Hash() != same.Hash() || len(one.Hash()) != 64 {
		t.Errorf("hashes %s and %s of the same declarations", one.Hash(), same.Hash())
	}
	if one.Hash() == other.Hash() {
		t.Error("two schemas have one hash")
	}
}

func TestAMistakeIsShownWhereItStands(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"modul m {}", "line 1, column 1: found modul; expected module and its name\nmodul m {}\n^"},
		{"module m {\n\ttopic pay_ins E\n}", "line 2, column 8: pay_ins is no name; write payIns\n\ttopic pay_ins E\n\t      ^"},
		{"module Payments {}", "line 1, column 8: Payments is no name; write payments\nmodule Payments {}\n       ^"},
		{"module ftl {}", "line 1, column 8: a module cannot be called ftl, where the SDK's own types stand\nmodule ftl {}\n       ^"},
		{"module m {", "line 1, column 11: found the end; expected topic, export topic, subscription, data, verb, sink, mapper or '}'\nmodule m {\n          ^"},
		{"module m { export verb v() }", "line 1, column 19: found verb; expected topic; nothing else is exported\nmodule m { export verb v() }\n                  ^"},
		{"module m { topic t E { +keep 1s } }", "line 1, column 24: +keep does not stand here; expected +retain, +retainBytes or '}'\nmodule m { topic t E { +keep 1s } }\n                       ^"},
		{"module m { topic t E { +retain 3h1d } }", "line 1, column 32: \"3h1d\" is no duration; write whole numbers with d, h, m, s or ms, the largest first, as in 1d3h or 30s\nmodule m { topic t E { +retain 3h1d } }\n                               ^"},
		{"module m { topic t E { +retain 10001d } }", "line 1, column 32: 10001d is longer than 10000d\nmodule m { topic t E { +retain 10001d } }\n                               ^"},
		{"module m { topic t E { +retain 1s +retain 1s } }", "line 1, column 35: +retain stands twice\nmodule m { topic t E { +retain 1s +retain 1s } }\n                                  ^"},
		{"module m { subscription s t { +parallel 0 } }", "line 1, column 41: \"0\" is no number of events; write a whole number from 1 to 10000\nmodule m { subscription s t { +parallel 0 } }\n                                        ^"},
		{"module m { sink s(E) }", "line 1, column 17: sink s needs +subscribe and a subscription\nmodule m { sink s(E) }\n                ^"},
		{"module m { mapper s(E) F {} }", "line 1, column 19: mapper s needs +map, a subscription and a topic\nmodule m { mapper s(E) F {} }\n                  ^"},
		{"module m { verb v() { +ingress http post /x } }", "line 1, column 37: post is no method; write POST\nmodule m { verb v() { +ingress http post /x } }\n                                    ^"},
		{"module m { verb v() { +ingress http GET /a//b } }", "line 1, column 37: the path /a//b has an empty part; write one / between parts and none at the end\nmodule m { verb v() { +ingress http GET /a//b } }\n                                    ^"},
		{"module m { data D { \"open Int } }", "line 1, column 21: the quotes do not close on this line, or hold an escape that does not exist\nmodule m { data D { \"open Int } }\n                    ^"},
		{"module m { sink s(E) { +subscribe x +retry 5 } }", "line 1, column 44: a retry needs the shortest backoff: [retries] minBackoff [maxBackoff] [catch verb], as in 5 1s 1m\nmodule m { sink s(E) { +subscribe x +retry 5 } }\n                                           ^"},
		{"module m { topic t " + strings.Repeat("[", 40), "line 1, column 52: types nest more than 32 deep here\nmodule m { topic t " + strings.Repeat("[", 40) + "\n" + strings.Repeat(" ", 51) + "^"},
	} {
		_, err := schema.Parse(c.text)
		if err == nil {
			t.Errorf("%s parses", c.text)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "Syntax: "); got != c.want {
			t.Errorf("%s\nfails with\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
}

func TestTheSchemasOfTheGuideParseBackToThemselves(t *testing.T) {
	guide, err := os.ReadFile("../../docs/modules.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(guide), "\n```ftl\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("the guide shows no schema")
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		s := parse(t, text)
		if s.String() != text {
			t.Errorf("printed\n%s\nwant\n%s", s, text)
		}
		if problems := s.Problems(); problems != nil {
			t.Errorf("the schema has problems: %v", problems)
		}
	}
}
