package schema

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// String returns the text of all modules, by name.
func (s *Schema) String() string {
	var p printer
	for i, m := range byName(s.Modules) {
		if i > 0 {
			p.text.WriteString("\n")
		}
		p.module(m)
	}
	return p.text.String()
}

// String returns the module's text, in the canonical form.
func (m *Module) String() string {
	var p printer
	p.module(m)
	return p.text.String()
}

// String returns the data type's text, as it stands in its module.
func (d *Data) String() string {
	var p printer
	p.data(d)
	return p.text.String()
}

func (m *Module) declared() string { return m.Name }

// byName returns declarations in the canonical order.
func byName[D declaration](declarations []D) []D {
	return slices.SortedStableFunc(slices.Values(declarations), func(a, b D) int {
		return cmp.Compare(a.declared(), b.declared())
	})
}

// printer writes lines, indented by the blocks that are open.
type printer struct {
	text  strings.Builder
	depth int
}

func (p *printer) line(words ...string) {
	p.text.WriteString(strings.Repeat("  ", p.depth) + strings.Join(words, " ") + "\n")
}

// block writes a head and what stands in its braces, or the head alone where
// that is nothing.
func (p *printer) block(head string, lines []string) {
	if len(lines) == 0 {
		p.line(head)
		return
	}
	p.line(head, "{")
	p.depth++
	for _, line := range lines {
		p.line(line)
	}
	p.depth--
	p.line("}")
}

func (p *printer) module(m *Module) {
	p.line("module", m.Name, "{")
	p.depth++
	each(byName(m.Topics), p.topic)
	each(byName(m.Subscriptions), p.subscription)
	p.apart(len(m.Data))
	each(byName(m.Data), p.data)
	p.apart(len(m.Verbs) + len(m.Sinks) + len(m.Mappers))
	each(byName(m.Verbs), p.verb)
	each(byName(m.Sinks), p.sink)
	each(byName(m.Mappers), p.mapper)
	p.depth--
	p.line("}")
}

// apart writes an empty line before a number of declarations, unless there is
// none or they are the first.
func (p *printer) apart(count int) {
	if count > 0 && !strings.HasSuffix(p.text.String(), "{\n") {
		p.text.WriteString("\n")
	}
}

func (p *printer) topic(t *Topic) {
	head := "topic " + t.Name + " " + t.Event.String()
	if t.Exported {
		head = "export " + head
	}
	var lines []string
	if t.Retain > 0 {
		lines = append(lines, "+retain "+FormatDuration(t.Retain))
	}
	if t.RetainBytes > 0 {
		lines = append(lines, "+retainBytes "+strconv.FormatInt(t.RetainBytes, 10))
	}
	p.block(head, lines)
}

func (p *printer) subscription(s *Subscription) {
	var lines []string
	if s.FromLatest {
		lines = append(lines, "+fromLatest")
	}
	if s.InFlight() > 1 {
		lines = append(lines, "+parallel "+formatCount(s.Parallel))
	}
	p.block("subscription "+s.Name+" "+s.Topic.String(), lines)
}

func (p *printer) data(d *Data) {
	if len(d.Fields) == 0 {
		p.line("data", d.Name, "{}")
		return
	}
	var lines []string
	for _, f := range byName(d.Fields) {
		lines = append(lines, f.String())
	}
	p.block("data "+d.Name, lines)
}

// String returns the field's text: its name, in quotes where it is no
// identifier, and its type.
func (f *Field) String() string {
	name := f.Name
	if !isIdentifier(name) {
		name = strconv.Quote(name)
	}
	return name + " " + f.Type.String()
}

func (p *printer) verb(v *Verb) {
	var lines []string
	if v.Ingress != nil {
		lines = append(lines, "+ingress http "+v.Ingress.Method+" "+v.Ingress.Path)
	}
	p.block("verb "+v.Name+"("+after("", v.Request)+")"+after(" ", v.Response), append(lines, publishes(v.Publish)...))
}

func (p *printer) sink(s *Sink) {
	lines := []string{"+subscribe " + s.Subscription}
	lines = append(lines, failures(s.Retry, s.DeadLetter)...)
	p.block("sink "+s.Name+"("+s.Event.String()+")", append(lines, publishes(s.Publish)...))
}

func (p *printer) mapper(m *Mapper) {
	lines := []string{"+map " + m.Subscription + " " + m.Topic.String()}
	lines = append(lines, failures(m.Retry, m.DeadLetter)...)
	p.block("mapper "+m.Name+"("+m.Event.String()+") "+m.Result.String(), append(lines, publishes(m.Publish)...))
}

func failures(retry *Retry, deadLetter Ref) []string {
	var lines []string
	if retry != nil {
		lines = append(lines, "+retry "+retry.String())
	}
	if deadLetter != (Ref{}) {
		lines = append(lines, "+deadletter "+deadLetter.String())
	}
	return lines
}

func publishes(topics []Ref) []string {
	var lines []string
	for _, topic := range topics {
		lines = append(lines, "+publish "+topic.String())
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// after returns the type's text after a prefix, or "" for no type.
func after(prefix string, t Type) string {
	if t == nil {
		return ""
	}
	return prefix + t.String()
}
