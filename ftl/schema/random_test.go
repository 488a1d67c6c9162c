package schema_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// TestAnySchemaParsesBackToItself prints random models and reads them again.
func TestAnySchemaParsesBackToItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &schema.Schema{Modules: rapid.SliceOfNDistinct(modules(), 0, 3, func(m *schema.Module) string { return m.Name }).Draw(t, "modules")}
		text := s.String()
		again, err := schema.Parse(text)
		if err != nil {
			t.Fatalf("%v\nin\n%s", err, text)
		}
		if again.String() != text {
			t.Fatalf("printed\n%s\nand then\n%s", text, again)
		}
		third, err := schema.Parse(again.String())
		if err != nil || !reflect.DeepEqual(third, again) {
			t.Fatalf("parsed to something else: %v\n%s", err, text)
		}
	})
}

// FuzzParse checks that no text makes the parser fail otherwise than by a
// mistake with a place, and that what parses is printed to what parses to the
// same.
func FuzzParse(f *testing.F) {
	f.Add(payments)
	f.Add(strings.ReplaceAll(payments, "payments.", ""))
	f.Add("module m { verb v() {String: Int} { +ingress http GET /a/{id} } // note\n }")
	f.Add("module m { data D { \"a\\x00\\u1234\" [{Int: [ftl.CatchRequest<E>?]}]? } }")
	f.Add("module m { sink s(E) { +subscribe x +retry 0 catch o.v } mapper p(E) F { +map x y\n+retry 3 1d3h // so\n} }")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schema.Parse(text)
		if err != nil {
			return
		}
		s.Problems()
		again, err := schema.Parse(s.String())
		if err != nil {
			t.Fatalf("%q is printed as\n%s\nwhich fails: %v", text, s, err)
		}
		if again.String() != s.String() {
			t.Fatalf("%q is printed as\n%s\nand then as\n%s", text, s, again)
		}
	})
}

func names() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"topic", "data", "verb", "export", "catch", "module", "http", "string"}),
		rapid.StringMatching(`[a-z][A-Za-z0-9]{0,6}`),
	)
}

func refs() *rapid.Generator[schema.Ref] {
	return rapid.Custom(func(t *rapid.T) schema.Ref {
		return schema.Ref{Module: names().Filter(isModuleName).Draw(t, "module"), Name: rapid.OneOf(names(), rapid.SampledFrom([]string{"Int", "String", "E"})).Draw(t, "name")}
	})
}

func types(depth int) *rapid.Generator[schema.Type] {
	return rapid.Custom(func(t *rapid.T) schema.Type {
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 {
			kind %= 2
		}
		below := func() schema.Type { return types(depth-1).Draw(t, "part") }
		switch kind {
		case 0:
			return rapid.SampledFrom([]schema.Type{schema.Bool, schema.Int, schema.Float, schema.String, schema.Bytes, schema.Time, schema.Any}).Draw(t, "basic")
		case 1:
			return refs().Draw(t, "ref")
		case 2:
			return schema.Array{Element: below()}
		case 3:
			return schema.Map{Key: below(), Value: below()}
		case 4:
			return schema.CatchRequest{Event: below()}
		}
		of := below()
		if optional, ok := of.(schema.Optional); ok {
			return optional
		}
		return schema.Optional{Of: of}
	})
}

func retries() *rapid.Generator[*schema.Retry] {
	return rapid.Custom(func(t *rapid.T) *schema.Retry {
		if rapid.Bool().Draw(t, "default") {
			return nil
		}
		shortest := rapid.IntRange(1, 86400).Draw(t, "shortest")
		r := &schema.Retry{
			Retries:    rapid.IntRange(1, schema.MaxRetries).Draw(t, "retries"),
			MinBackoff: time.Duration(shortest) * time.Second,
			MaxBackoff: time.Duration(rapid.IntRange(shortest, 86400).Draw(t, "longest")) * time.Second,
		}
		if rapid.Bool().Draw(t, "caught") {
			r.Catch = refs().Draw(t, "catch")
		}
		return r
	})
}

func modules() *rapid.Generator[*schema.Module] {
	return rapid.Custom(func(t *rapid.T) *schema.Module {
		named := func() string { return names().Draw(t, "name") }
		list := func(what string, add func()) {
			for range rapid.IntRange(0, 3).Draw(t, what) {
				add()
			}
		}
		typed := types(3)
		published := rapid.SliceOfN(refs(), 0, 3)
		m := &schema.Module{Name: names().Filter(isModuleName).Draw(t, "module")}
		list("topics", func() {
			m.Topics = append(m.Topics, &schema.Topic{
				Name: named(), Event: typed.Draw(t, "event"), Exported: rapid.Bool().Draw(t, "exported"),
				Retain:      time.Duration(rapid.Int64Range(0, int64(schema.MaxDuration/time.Millisecond)).Draw(t, "retain")) * time.Millisecond,
				RetainBytes: rapid.Int64Min(0).Draw(t, "bytes"),
			})
		})
		list("subscriptions", func() {
			m.Subscriptions = append(m.Subscriptions, &schema.Subscription{
				Name: named(), Topic: refs().Draw(t, "topic"), FromLatest: rapid.Bool().Draw(t, "latest"), Parallel: rapid.IntRange(0, schema.MaxParallel).Draw(t, "parallel"),
			})
		})
		list("data", func() {
			d := &schema.Data{Name: named()}
			for _, name := range rapid.SliceOfNDistinct(rapid.String(), 0, 4, rapid.ID).Draw(t, "fields") {
				d.Fields = append(d.Fields, &schema.Field{Name: name, Type: typed.Draw(t, "field")})
			}
			m.Data = append(m.Data, d)
		})
		list("verbs", func() {
			v := &schema.Verb{Name: named(), Publish: published.Draw(t, "publish")}
			if rapid.Bool().Draw(t, "takes") {
				v.Request = typed.Draw(t, "request")
			}
			if rapid.Bool().Draw(t, "answers") {
				v.Response = typed.Draw(t, "response")
			}
			if rapid.Bool().Draw(t, "served") {
				v.Ingress = &schema.Ingress{Method: rapid.SampledFrom(schema.Methods).Draw(t, "method"), Path: rapid.SampledFrom([]string{"/", "/a", "/a/{id}/b-c.d"}).Draw(t, "path")}
			}
			m.Verbs = append(m.Verbs, v)
		})
		list("sinks", func() {
			m.Sinks = append(m.Sinks, &schema.Sink{Name: named(), Event: typed.Draw(t, "event"), Subscription: named(), Retry: retries().Draw(t, "retry"), Publish: published.Draw(t, "publish")})
		})
		list("mappers", func() {
			m.Mappers = append(m.Mappers, &schema.Mapper{Name: named(), Event: typed.Draw(t, "event"), Result: typed.Draw(t, "result"), Subscription: named(), Topic: refs().Draw(t, "topic"), Retry: retries().Draw(t, "retry"), DeadLetter: refs().Draw(t, "letters")})
		})
		return m
	})
}

func isModuleName(text string) bool { return schema.CheckModuleName(text) == nil }
