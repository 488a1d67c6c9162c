package schema_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// TestAProblemIsNamed has one sentence a rule; the rules that a module's source
// can break are tried on source in package extract as well.
func TestAProblemIsNamed(t *testing.T) {
	const base = "topic t E  topic u F  topic g E  subscription s t  subscription z t  data E { id String }  data F {}  verb c(ftl.CatchRequest<E>) "
	for _, c := range []struct{ text, want string }{
		{"module m {} module m {}", "module m: two modules are called m"},
		{"module topic {}", "module topic: no module can be called topic: the tables of what is deployed begin with that name and an underscore, as its topics would; give it another name"},
		{"module m { topic a E }", "module m: the event of topic a is of data type m.E, which does not exist"},
		{"module m { topic a [o.E] }", "module m: the event of topic a is of data type o.E, which does not exist"},
		{"module m { topic a {Float: Int} }", "module m: the event of topic a has a map whose keys are Float; they may be String or Int"},
		{"module m { topic a ftl.CatchRequest<Int> }", "module m: the event of topic a is of type ftl.CatchRequest<Int>, which may only be the request of a verb"},
		{"module m { topic a Int  subscription a a }", "module m: subscription a has the name of a topic: names are unique in a module; give one of them another name"},
		{"module m { data D { x Int x Int } }", `module m: data type D has two fields named "x"`},
		{"module m { subscription s t }", "module m: subscription s is to topic m.t, which does not exist; the module declares no topic"},
		{"module m { topic payins Int  subscription s payin }", "module m: subscription s is to topic m.payin, which does not exist; did you mean payins?"},
		{"module m { topic a Int  topic b Int  subscription s other }", "module m: subscription s is to topic m.other, which does not exist; the module declares a, b"},
		{"module m { subscription s payment.t } module payments {}", "module m: subscription s is to topic payment.t, of a module that does not exist; did you mean payments?"},
		{"module m { subscription s o.t } module o { topic t Int }", "module m: subscription s is to topic o.t of another module, which does not export it; export it there with //ftl:export"},
		{"module m { verb v() { +publish o.t } } module o { topic t Int }", "module m: verb v publishes to topic o.t of another module; a topic has one owner; let that module publish, or publish to a topic of m"},
		{"module m { verb v(E) }", "module m: the request of verb v is of data type m.E, which does not exist"},
		{"module m { verb v() E }", "module m: the response of verb v is of data type m.E, which does not exist"},
		{"module m {" + base + "sink x(E) { +subscribe sub } }", "module m: sink x is for subscription sub, which does not exist; the module declares s, z"},
		{"module m {" + base + "sink x(F) { +subscribe s } }", "module m: sink x takes m.F, but the events of topic m.t are m.E; take m.E"},
		{"module m {" + base + "sink x(E) { +subscribe s +retry 1s catch d } }", "module m: sink x has the catch verb d, which does not exist; did you mean c?"},
		{"module m {" + base + "sink x(E) { +subscribe s +deadletter t } }", "module m: sink x gives up to topic m.t, which it reads: that never ends; name another topic"},
		{"module m {" + base + "sink x(E) { +subscribe s +deadletter u } }", "module m: sink x gives events of m.E up to topic m.u, whose events are m.F; name a topic of m.E"},
		{"module m {" + base + "sink x(E) { +subscribe s } sink y(E) { +subscribe s +deadletter g } }", "module m: sinks x and y of subscription s give up to different topics; name one topic in both, or none"},
		{"module m {" + base + "mapper p(E) E { +map s u } }", "module m: mapper p returns m.E, but the events of topic m.u are m.F; return m.F"},
		{"module m {" + base + "mapper p(E) E { +map s t } }", "module m: mapper p fills topic m.t, which it reads: that never ends; fill another topic"},
		{"module m {" + base + "mapper p(E) E { +map s g } mapper q(E) E { +map s g } }", "module m: mapper q is for subscription s, which has the mapper p; declare another subscription to the topic"},
		{"module m {" + base + "mapper p(E) E { +map s g } sink x(E) { +subscribe s } }", "module m: sink x is for subscription s, which has the mapper p: a subscription has sinks or one mapper; declare another subscription to the topic"},
		{"module m {" + base + "verb v(E) { +ingress http GET /{id} } verb w(E) { +ingress http GET /{ID} } }", "module m: the path has the parameter {ID}, but E has no field of that JSON name; did you mean id?"},
		{"module m {" + base + "verb v() { +ingress http GET /a } verb w() { +ingress http GET /a } }", "module m: verbs v and w would both serve a request: GET /a and GET /a; give one of them another path"},
	} {
		err := parse(t, c.text).Validate()
		if !errors.Is(err, fault.InvalidClause) || fault.Of(err).Message != c.want {
			t.Errorf("%s\ngives %v\nwant  %s", c.text, err, c.want)
		}
	}
}

func TestWhatTextCannotSayIsCheckedInAModelToo(t *testing.T) {
	for want, change := range map[string]func(*schema.Module){
		`module M_: "M_" is no name of a module; write m`: func(m *schema.Module) { m.Name = "M_" },
		`module m: "snake_case" is no name of a topic; write snakeCase`: func(m *schema.Module) {
			m.Topics = append(m.Topics, &schema.Topic{Name: "snake_case", Event: schema.Int})
		},
		`module m: "a-b" is no name of a data type`: func(m *schema.Module) { m.Data = append(m.Data, &schema.Data{Name: "a-b"}) },
		"module m: topic t retains events for 1ns; it may be from 1ms to 10000d, in whole milliseconds; leave it out to keep events for ever": func(m *schema.Module) { m.Topics[0].Retain = 1 },
		"module m: topic t retains -1 bytes of events; it may be from 1; leave it out to keep all events":                                     func(m *schema.Module) { m.Topics[0].RetainBytes = -1 },
		"module m: subscription s has 10001 events with its sinks at once; it may be from 1 to 10000":                                         func(m *schema.Module) { m.Subscriptions[0].Parallel = 10_001 },
		"module m: sink x: a backoff of 0s is declared; it may be from 1s to 1d":                                                              func(m *schema.Module) { m.Sinks[0].Retry = &schema.Retry{Retries: 1} },
		"module m: the path \"x\" does not begin with /; write /x": func(m *schema.Module) {
			m.Verbs = []*schema.Verb{{Name: "v", Ingress: &schema.Ingress{Method: "GET", Path: "x"}}}
		},
	} {
		s := parse(t, "module m { topic t Int  subscription s t  sink x(Int) { +subscribe s } }")
		change(s.Modules[0])
		if err := s.Validate(); err == nil || fault.Of(err).Message != want {
			t.Errorf("gives %v\nwant  %s", err, want)
		}
	}
}

func TestAnExportedTopicMayBeSubscribedToFromAnotherModule(t *testing.T) {
	s := parse(t, "module a { export topic t E  data E {} } module b { subscription s a.t  sink x(a.E) { +subscribe s } }")
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

func TestASubscriptionIsAskedForWhatReceivesFromIt(t *testing.T) {
	m := parse(t, payments).Modules[0]
	if sinks := m.SinksOf("paymentProcessing"); len(sinks) != 1 || sinks[0] != m.Sink("processPayin") {
		t.Errorf("the sinks of paymentProcessing are %v", sinks)
	}
	if m.MapperOf("receiptWriting") != m.Mapper("toReceipt") || m.MapperOf("paymentProcessing") != nil {
		t.Error("the mapper of receiptWriting is another")
	}
	if got := m.DeadLetterOf("paymentProcessing"); got != (schema.Ref{Module: "payments", Name: "payinsGivenUp"}) {
		t.Errorf("the dead letters of paymentProcessing go to %s", got)
	}
	if got := m.DeadLetterOf("receiptWriting"); got != (schema.Ref{}) {
		t.Errorf("the dead letters of receiptWriting go to %s", got)
	}
	if got := m.Subscription("receiptWriting").InFlight(); got != 1 {
		t.Errorf("%d events of receiptWriting are out at once", got)
	}
}

func TestBackoffDoublesUpToTheLongest(t *testing.T) {
	r, err := schema.ParseRetry([]string{"5", "10s", "1m", "catch", "recover"}, "m")
	if err != nil {
		t.Fatal(err)
	}
	if r.Attempts() != 6 || r.Catch != (schema.Ref{Module: "m", Name: "recover"}) {
		t.Errorf("read %+v", r)
	}
	for i, want := range []time.Duration{10, 20, 40, 60, 60} {
		if got := r.Backoff(i + 1); got != want*time.Second {
			t.Errorf("after attempt %d it waits %s, want %s", i+1, got, want*time.Second)
		}
	}
	if got := schema.DefaultRetry.Backoff(schema.MaxRetries); got != time.Hour {
		t.Errorf("after a million attempts it waits %s", got)
	}
	if got := (&schema.Sink{}).Policy(); got != schema.DefaultRetry {
		t.Errorf("a sink without a retry has %v", got)
	}
}

func TestDurationsAreWrittenFromTheLargestUnit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1d3h": 27 * time.Hour, "90s": 90 * time.Second, "1h1m1s1ms": time.Hour + time.Minute + time.Second + time.Millisecond, "0s": 0, "10000d": schema.MaxDuration,
	} {
		got, err := schema.ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%s is %s, %v", text, got, err)
		}
		if again, err := schema.ParseDuration(schema.FormatDuration(got)); err != nil || again != got {
			t.Errorf("%s is printed as %s", got, schema.FormatDuration(got))
		}
	}
	for _, text := range []string{"", "1", "s", "3h1d", "1h1h", "1x", "1.5h", "-1s", "1w", "10001d", "10000d1ms", "99999999999999999999s"} {
		if d, err := schema.ParseDuration(text); !errors.Is(err, fault.InvalidClause) {
			t.Errorf("%q is %s", text, d)
		}
	}
}

func TestNamesAreMadeOfGoNames(t *testing.T) {
	for text, want := range map[string]string{"Payins": "payins", "HTTPCall": "httpCall", "ID": "id", "snake_case": "snakeCase", "pay-ins": "payIns", "9lives": "lives", "": "", "Ärger": "rger"} {
		if got := schema.LowerCamel(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	for name, want := range map[string]bool{"payins": true, "p1": true, "Payins": false, "pay_ins": false, "1p": false, "": false, "ä": false} {
		if schema.IsName(name) != want {
			t.Errorf("whether %q is a name is %t", name, !want)
		}
	}
}

func TestWhichPathsOverlap(t *testing.T) {
	for _, c := range []struct {
		one, other string
		overlap    bool
	}{
		{"/a", "/a", true}, {"/{x}", "/{y}", true}, {"/a/{x}", "/{y}/b", true},
		{"/a", "/b", false}, {"/a", "/{x}", false}, {"/a/{x}", "/a/b", false}, {"/a", "/a/b", false}, {"/", "/{x}", false},
	} {
		one, other := &schema.Ingress{Method: "GET", Path: c.one}, &schema.Ingress{Method: "GET", Path: c.other}
		if one.Overlaps(other) != c.overlap || other.Overlaps(one) != c.overlap {
			t.Errorf("whether %s and %s overlap is %t", one, other, !c.overlap)
		}
	}
	if (&schema.Ingress{Method: "GET", Path: "/a"}).Overlaps(&schema.Ingress{Method: "PUT", Path: "/a"}) {
		t.Error("paths of two methods overlap")
	}
}

func TestVerbsOfModulesThatAreServedTogetherOverlap(t *testing.T) {
	s := parse(t, `
		module m { data E { id String }  verb v(E) { +ingress http GET /a/{id} }  verb x() { +ingress http POST /b } }
		module n { data E { id String }  verb w(E) { +ingress http GET /{id}/b }  verb y() { +ingress http GET /a/b }  verb z() }`)
	if err := s.Validate(); err != nil {
		t.Errorf("two modules that may be served apart are refused: %v", err)
	}
	overlaps := s.Overlaps()
	const want = "verbs m.v and n.w would both serve a request: GET /a/{id} and GET /{id}/b; give one of them another path"
	if len(overlaps) != 1 || !errors.Is(overlaps[0].Err(), fault.InvalidClause) || fault.Of(overlaps[0].Err()).Message != want {
		t.Errorf("the overlaps are %v, want %s", overlaps, want)
	}
}
