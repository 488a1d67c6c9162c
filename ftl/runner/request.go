package runner

import (
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/value"
)

// fieldError is a request that does not fit its verb: which field, and why.
type fieldError struct {
	field string
	cause error
}

func (e *fieldError) Error() string { return e.cause.Error() }
func (e *fieldError) Unwrap() error { return e.cause }

// refuse makes the error of a field.
func refuse(kind fault.Kind, field, format string, args ...any) error {
	return &fieldError{field, fault.New(kind, format, args...)}
}

// requestOf makes a verb's request of one over HTTP: the fields of the JSON body,
// of the path's segments and of the query's parameters, by their names in JSON.
// A field that is given twice, is unknown, is missing and not optional, or is of
// another type, is refused with its name.
func (i *ingress) requestOf(r *http.Request, verb *schema.Verb) (value.Value, error) {
	body, err := i.bodyOf(r)
	if err != nil || verb.Request == nil {
		return value.None(), err
	}
	data := i.module.dataOf(verb.Request)
	if data == nil {
		for name := range r.URL.Query() {
			return value.None(), refuse(fault.UnknownField, name, "the verb %s takes its request as the body, and no parameter %s", verb.Name, name)
		}
		return body, i.module.checkType(verb.Request, body, "")
	}
	if body.IsNone() {
		body = value.Fields(value.Object{})
	}
	fields, ok := body.AsObject()
	if !ok {
		return value.None(), fault.New(fault.TypeMismatch, "the body is a JSON object with the fields of %s, not of kind %s", data.Name, body.Kind())
	}
	given := maps.Clone(fields)
	for _, name := range verb.Ingress.Parameters() {
		text := r.PathValue(name)
		if !utf8.ValidString(text) {
			return value.None(), fault.New(fault.TypeMismatch, "field %s, of the path, is not valid UTF-8", name)
		}
		if err := add(given, data, name, []string{text}, "path"); err != nil {
			return value.None(), err
		}
	}
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if err := add(given, data, name, query[name], "query"); err != nil {
			return value.None(), err
		}
	}
	request := value.Fields(given)
	return request, i.module.checkType(verb.Request, request, "")
}

// bodyOf reads the body, none where there is none.
func (i *ingress) bodyOf(r *http.Request) (value.Value, error) {
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, MaxBodyBytes))
	if err != nil {
		return value.None(), fault.New(fault.TooLarge, "the body cannot be read to its end; %d bytes are the limit: %w", MaxBodyBytes, err)
	}
	if len(text) == 0 {
		return value.None(), nil
	}
	if given := r.Header.Get("Content-Type"); given != "" {
		if kind, _, err := mime.ParseMediaType(given); err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
			return value.None(), fault.New(fault.TypeMismatch, "the body is %s; a verb takes application/json", given)
		}
	}
	body, err := value.ParseJSON(text)
	if err != nil {
		return value.None(), fault.New(fault.TypeMismatch, "the body is not JSON: %w", err)
	}
	return body, nil
}

// add adds a field that stands as text in the path or the query.
func add(fields value.Object, data *schema.Data, name string, texts []string, where string) error {
	field := data.Field(name)
	if field == nil {
		return refuse(fault.UnknownField, name, "%s has no field %s, which stands in the %s", data.Name, name, where)
	}
	if _, twice := fields[name]; twice {
		return refuse(fault.InvalidClause, name, "the field %s is given twice: once in the %s", name, where)
	}
	v, err := fromText(required(field.Type), texts)
	if err != nil {
		return refuse(fault.TypeMismatch, name, "the field %s in the %s is of type %s: %w", name, where, field.Type, err)
	}
	fields[name] = v
	return nil
}

// required is the type of a value that is there.
func required(t schema.Type) schema.Type {
	if optional, ok := t.(schema.Optional); ok {
		return optional.Of
	}
	return t
}

// fromText reads a value that stands as text.
func fromText(t schema.Type, texts []string) (value.Value, error) {
	if list, ok := t.(schema.Array); ok {
		elements := make([]value.Value, len(texts))
		for n, text := range texts {
			var err error
			if elements[n], err = fromText(required(list.Element), []string{text}); err != nil {
				return value.None(), err
			}
		}
		return value.Array(elements...), nil
	}
	if len(texts) != 1 {
		return value.None(), fmt.Errorf("it is given %d times", len(texts))
	}
	text := texts[0]
	switch t {
	case schema.Bool:
		b, err := strconv.ParseBool(text)
		return value.Bool(b), err
	case schema.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		return value.Int(n), err
	case schema.Float:
		f, err := strconv.ParseFloat(text, 64)
		return value.Float(f), err
	case schema.String, schema.Bytes, schema.Time, schema.Any:
		return value.String(text), nil
	}
	return value.None(), fmt.Errorf("a %s stands in the body only", t)
}

// dataOf is the data type that a request is, nil where it is another type.
func (m *module) dataOf(t schema.Type) *schema.Data {
	if ref, ok := required(t).(schema.Ref); ok {
		return m.schema.DataOf(ref)
	}
	return nil
}

// checkType returns a fieldError where a value is not of a type. place is where
// it stands in the request, as lines[2].price.
func (m *module) checkType(t schema.Type, v value.Value, place string) error {
	if optional, ok := t.(schema.Optional); ok {
		if v.IsNone() || v.IsNull() {
			return nil
		}
		t = optional.Of
	}
	mistyped := func() error {
		return refuse(fault.TypeMismatch, place, "%s is of type %s, not a value of kind %s", placeName(place), t, v.Kind())
	}
	switch t := t.(type) {
	case schema.Basic:
		return checkBasic(t, v, place, mistyped)
	case schema.Array:
		return m.checkArray(t, v, place, mistyped)
	case schema.Map:
		fields, ok := v.AsObject()
		if !ok && !v.IsNull() {
			return mistyped()
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if err := m.checkType(t.Value, fields[name], join(place, name)); err != nil {
				return err
			}
		}
		return nil
	case schema.Ref:
		return m.checkData(t, v, place, mistyped)
	}
	return nil
}

func checkBasic(t schema.Basic, v value.Value, place string, mistyped func() error) error {
	text, isText := v.AsString()
	ok := true
	switch t {
	case schema.Bool:
		ok = v.Kind() == value.KindBool
	case schema.Int:
		ok = v.Kind() == value.KindInt
	case schema.Float:
		ok = v.Kind() == value.KindInt || v.Kind() == value.KindFloat
	case schema.String:
		ok = isText
	case schema.Bytes:
		if v.IsNull() {
			return nil
		}
		if _, err := base64.StdEncoding.DecodeString(text); isText && err != nil {
			return refuse(fault.TypeMismatch, place, "%s is bytes as base64: %w", placeName(place), err)
		}
		ok = isText
	case schema.Time:
		if _, err := time.Parse(time.RFC3339, text); isText && err != nil {
			return refuse(fault.TypeMismatch, place, "%s is a time as 2026-01-31T10:00:00Z, not %q", placeName(place), text)
		}
		ok = isText
	}
	if !ok {
		return mistyped()
	}
	return nil
}

func (m *module) checkArray(t schema.Array, v value.Value, place string, mistyped func() error) error {
	elements, ok := v.AsArray()
	if !ok && !v.IsNull() {
		return mistyped()
	}
	for n, element := range elements {
		if err := m.checkType(t.Element, element, fmt.Sprintf("%s[%d]", place, n)); err != nil {
			return err
		}
	}
	return nil
}

func (m *module) checkData(t schema.Ref, v value.Value, place string, mistyped func() error) error {
	data := m.schema.DataOf(t)
	if data == nil {
		return nil // It is another module's, and decoding is what finds out.
	}
	fields, ok := v.AsObject()
	if !ok {
		return mistyped()
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if data.Field(name) == nil {
			return refuse(fault.UnknownField, join(place, name), "%s has no field %s", data.Name, name)
		}
	}
	for _, field := range data.Fields {
		given, there := fields[field.Name]
		_, optional := field.Type.(schema.Optional)
		if !there && !optional && field.Type != schema.Any {
			return refuse(fault.TypeMismatch, join(place, field.Name), "the field %s of type %s is missing", join(place, field.Name), field.Type)
		}
		if err := m.checkType(field.Type, given, join(place, field.Name)); err != nil {
			return err
		}
	}
	return nil
}

// join is the place of a field in what stands at a place.
func join(place, name string) string {
	if place == "" {
		return name
	}
	return place + "." + name
}

func placeName(place string) string {
	if place == "" {
		return "the request"
	}
	return "the field " + place
}
