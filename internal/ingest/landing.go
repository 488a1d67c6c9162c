package ingest

import (
	"encoding/base64"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// land makes a record of a message: its key is what IDENTITY names, its fields
// are what MAP names. What the message does not carry is absent. An error is
// the message's fault.
func land(declared *store.Consumer, table *store.Table, content value.Value) (key, record value.Value, err error) {
	if key, err = identity(declared, content); err != nil {
		return key, record, err
	}
	if err := store.CheckKey(table.Name, key); err != nil {
		return key, record, err
	}
	fields := make(value.Object, len(declared.Map))
	for _, m := range declared.Map {
		v := m.From.Of(content)
		if v.IsNone() {
			continue
		}
		if fields[m.To], err = convert(table, m.To, v); err != nil {
			return key, record, err
		}
	}
	return key, value.Fields(fields), nil
}

// identity is the key of a message's record: a whole number or a string that
// is not empty, or a uuid, which only a message of the store can hold. A float
// is refused, since 1.0 and 1 would become one record, and 1.5 would become 1.
func identity(declared *store.Consumer, content value.Value) (value.Value, error) {
	key := declared.Identity.Of(content)
	switch key.Kind() {
	case value.KindInt, value.KindUUID:
		return key, nil
	case value.KindString:
		if text, _ := key.AsString(); text != "" {
			return key, nil
		}
		return key, fault.New(fault.TypeMismatch, "the identity %s is an empty string", declared.Identity)
	case value.KindNone:
		if _, ok := content.AsObject(); !ok {
			return key, fault.New(fault.TypeMismatch, "the message is %s, and only an object has an identity %s", content.Kind(), declared.Identity)
		}
		return key, fault.New(fault.TypeMismatch, "the message has no identity %s", declared.Identity)
	}
	return key, fault.New(fault.TypeMismatch, "the identity %s is a whole number or a string, not %s", declared.Identity, key)
}

// convert makes a field's value of what a message has for it. A string becomes
// a datetime, a uuid or bytes where the table's field takes that, because JSON
// has no other way to write one; nothing else is converted, and the table's
// own check refuses what is of another type.
func convert(table *store.Table, name string, v value.Value) (value.Value, error) {
	text, ok := v.AsString()
	if !ok {
		return v, nil
	}
	at := slices.IndexFunc(table.Fields, func(f store.Field) bool { return f.Name == name })
	if at < 0 {
		return v, nil
	}
	refuse := func(form string) error {
		return fault.New(fault.TypeMismatch, "field %s of table %s takes %s; %s is not %s", name, table.Name, table.Fields[at].Describe(), v, form)
	}
	switch table.Fields[at].Type {
	case store.TypeDatetime:
		// UnmarshalText is RFC 3339 to the letter, where Parse is lenient.
		var t time.Time
		if err := t.UnmarshalText([]byte(text)); err != nil {
			return v, refuse("RFC 3339 with an offset, as 2026-01-31T10:00:00Z is")
		}
		return value.Datetime(t), nil
	case store.TypeUUID:
		id, err := uuid.Parse(text)
		if err != nil || len(text) != len(uuid.Nil.String()) {
			return v, refuse("a uuid")
		}
		return value.UUID(id), nil
	case store.TypeBytes:
		content, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return v, refuse("base64 (RFC 4648, section 4)")
		}
		return value.Bytes(content), nil
	}
	return v, nil
}
