package schema

// Verb is a function that is called by its name or over HTTP.
type Verb struct {
	Name string
	// Request and Response are what it takes and answers, nil for nothing.
	Request, Response Type
	// Ingress is where it is served, nil for a verb that is not.
	Ingress *Ingress
	// Publish are the topics it publishes to, directly or through what it calls.
	Publish []Ref
}

// Sink is a function that takes the events of a subscription.
type Sink struct {
	Name         string
	Event        Type
	Subscription string
	// Retry is nil for the default; Policy returns what holds.
	Retry *Retry
	// DeadLetter is the module's topic, of the same event type, that takes the
	// events that were given up on, as they are; the zero Ref for none.
	DeadLetter Ref
	Publish    []Ref
}

// Mapper is a function that makes of each event of a subscription one event of
// a topic, in one commit with the acknowledgement.
type Mapper struct {
	Name         string
	Event        Type
	Result       Type
	Subscription string
	// Topic takes the results; it is the module's own.
	Topic      Ref
	Retry      *Retry
	DeadLetter Ref
	Publish    []Ref
}

// Ingress is where a verb is served over HTTP.
type Ingress struct {
	// Method is one of Methods.
	Method string
	// Path begins with /; a segment {name} fills the request's field of that
	// JSON name.
	Path string
}

// Policy returns how the sink is retried.
func (s *Sink) Policy() Retry { return policy(s.Retry) }

// Policy returns how the mapper is retried.
func (m *Mapper) Policy() Retry { return policy(m.Retry) }

func policy(declared *Retry) Retry {
	if declared == nil {
		return DefaultRetry
	}
	return *declared
}

func (v *Verb) declared() string   { return v.Name }
func (s *Sink) declared() string   { return s.Name }
func (m *Mapper) declared() string { return m.Name }
