package value

import (
	"bytes"
	"encoding"
	"math"
	"reflect"

	"github.com/tidemarkdb/tidemark/fault"
)

// Scan is the way back from Of: it stores the value in the variable that dst
// points to, whole, so that nothing of an earlier value stays in it.
//
// An object goes into a struct by its json tags, or a map with string keys; a
// struct's field that the object does not have becomes zero, a field of the
// object that the struct does not have is passed over. An any takes nil, bool,
// int64, float64, string, []byte, uuid.UUID, time.Time, time.Duration, []any,
// map[string]any or RecordID. Null and none are nil in a pointer, slice, map or
// any, and fit nowhere else but in a Value.
//
// Nothing is lost on the way: an int that its variable cannot hold, a fraction
// into an int, an int into a float that would round it, an array into a Go
// array of another length are fault.TypeMismatch, which names the place in the
// value: lines[3].price. (A float32 rounds a float.) After an error the variable
// holds a part of the value.
func (v Value) Scan(dst any) error {
	pointer := reflect.ValueOf(dst)
	if pointer.Kind() != reflect.Pointer || pointer.IsNil() {
		return fault.New(fault.TypeMismatch, "a value is scanned into a pointer to a variable, not a %T", dst)
	}
	if mismatch := v.scan(pointer.Elem()); mismatch != nil {
		return mismatch.fault()
	}
	return nil
}

func (v Value) scan(dst reflect.Value) *mismatch {
	t := dst.Type()
	switch {
	case t == reflect.TypeFor[Value]():
		dst.Set(reflect.ValueOf(v))
		return nil
	case v.IsNull() || v.IsNone():
		return v.scanNothing(dst)
	case t.Kind() == reflect.Pointer:
		target := reflect.New(t.Elem())
		if mismatch := v.scan(target.Elem()); mismatch != nil {
			return mismatch
		}
		dst.Set(target)
		return nil
	case t.Kind() == reflect.Interface && t.NumMethod() == 0:
		dst.Set(reflect.ValueOf(v.natural()))
		return nil
	case isOwnKind(t):
		if reflect.TypeOf(v.content) != t {
			return v.doesNotFit(t)
		}
		dst.Set(reflect.ValueOf(v.content))
		return nil
	}
	switch content := v.content.(type) {
	case bool:
		if t.Kind() != reflect.Bool {
			return v.doesNotFit(t)
		}
		dst.SetBool(content)
		return nil
	case int64:
		return v.scanInt(dst, content)
	case float64:
		return v.scanFloat(dst, content)
	case string:
		return v.scanString(dst, content)
	case []byte:
		return v.scanBytes(dst, content)
	case []Value:
		return v.scanArray(dst, content)
	case Object:
		return v.scanObject(dst, content)
	}
	return v.doesNotFit(t)
}

func (v Value) doesNotFit(t reflect.Type) *mismatch {
	return mismatchf("%s does not fit in a Go %s", withArticle(v.Kind()), t)
}

func (v Value) scanNothing(dst reflect.Value) *mismatch {
	switch dst.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		dst.SetZero()
		return nil
	default:
		return mismatchf("%s does not fit in a Go %s; a *%[2]s takes it", v.Kind(), dst.Type())
	}
}

// natural returns the Go value that an any gets.
func (v Value) natural() any {
	switch content := v.content.(type) {
	case null:
		return nil
	case []byte:
		return bytes.Clone(content)
	case []Value:
		elements := make([]any, len(content))
		for i, element := range content {
			elements[i] = element.natural()
		}
		return elements
	case Object:
		fields := make(map[string]any, len(content))
		for name, field := range content {
			if !field.IsNone() {
				fields[name] = field.natural()
			}
		}
		return fields
	default: // bool, int64, float64, string, uuid.UUID, time.Time, time.Duration, RecordID, nil
		return content
	}
}

func (v Value) scanInt(dst reflect.Value, i int64) *mismatch {
	switch {
	case dst.CanInt():
		if dst.OverflowInt(i) {
			return mismatchf("the int %d is outside what a Go %s holds", i, dst.Type())
		}
		dst.SetInt(i)
	case dst.CanUint():
		if i < 0 || dst.OverflowUint(uint64(i)) {
			return mismatchf("the int %d is outside what a Go %s holds", i, dst.Type())
		}
		dst.SetUint(uint64(i))
	case dst.CanFloat():
		dst.SetFloat(float64(i))
		if compareIntFloat(i, dst.Float()) != 0 {
			return mismatchf("a Go %s would round the int %d", dst.Type(), i)
		}
	default:
		return v.doesNotFit(dst.Type())
	}
	return nil
}

func (v Value) scanFloat(dst reflect.Value, f float64) *mismatch {
	switch {
	case dst.CanFloat():
		if dst.OverflowFloat(f) {
			return mismatchf("the float %s is outside what a Go %s holds", v, dst.Type())
		}
		dst.SetFloat(f)
		return nil
	case dst.CanInt() || dst.CanUint():
		if f < math.MinInt64 || f >= 1<<63 || f != math.Trunc(f) {
			return mismatchf("the float %s is no int and does not fit in a Go %s", v, dst.Type())
		}
		return v.scanInt(dst, int64(f))
	}
	return v.doesNotFit(dst.Type())
}

func (v Value) scanString(dst reflect.Value, s string) *mismatch {
	if reflect.PointerTo(dst.Type()).Implements(textUnmarshaler) {
		// What an earlier value left in a text type goes, as everywhere.
		target := reflect.New(dst.Type())
		if err := target.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
			return mismatchf("the string %q does not fit in a Go %s: %v", excerpt(s), dst.Type(), err)
		}
		dst.Set(target.Elem())
		return nil
	}
	if dst.Kind() != reflect.String {
		return v.doesNotFit(dst.Type())
	}
	dst.SetString(s)
	return nil
}

func (v Value) scanBytes(dst reflect.Value, content []byte) *mismatch {
	t := dst.Type()
	switch {
	case t.Kind() == reflect.Slice && isByte(t.Elem()):
		dst.SetBytes(bytes.Clone(content))
		return nil
	case t.Kind() == reflect.Array && isByte(t.Elem()):
		if len(content) != t.Len() {
			return mismatchf("%d bytes do not fit in a Go %s", len(content), t)
		}
		for i, b := range content {
			dst.Index(i).SetUint(uint64(b))
		}
		return nil
	}
	return v.doesNotFit(t)
}

func (v Value) scanArray(dst reflect.Value, elements []Value) *mismatch {
	t := dst.Type()
	switch t.Kind() {
	case reflect.Slice:
		dst.Set(reflect.MakeSlice(t, len(elements), len(elements)))
	case reflect.Array:
		if len(elements) != t.Len() {
			return mismatchf("an array of %d elements does not fit in a Go %s", len(elements), t)
		}
	default:
		return v.doesNotFit(t)
	}
	for i, element := range elements {
		if mismatch := element.scan(dst.Index(i)); mismatch != nil {
			return mismatch.inElement(i)
		}
	}
	return nil
}

func (v Value) scanObject(dst reflect.Value, fields Object) *mismatch {
	t := dst.Type()
	switch {
	case t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textUnmarshaler):
		return scanStruct(dst, fields)
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		return scanMap(dst, fields)
	}
	return v.doesNotFit(t)
}

func scanMap(dst reflect.Value, fields Object) *mismatch {
	t := dst.Type()
	entries := reflect.MakeMapWithSize(t, len(fields))
	for name, field := range fields {
		if field.IsNone() {
			continue
		}
		content := reflect.New(t.Elem()).Elem()
		if mismatch := field.scan(content); mismatch != nil {
			return mismatch.inField(QuoteIdentifier(name))
		}
		entries.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), content)
	}
	dst.Set(entries)
	return nil
}

func scanStruct(dst reflect.Value, fields Object) *mismatch {
	for _, field := range structFields(dst.Type()) {
		content, present := fields[field.name]
		if !present || content.IsNone() {
			if target, err := dst.FieldByIndexErr(field.index); err == nil {
				target.SetZero()
			}
			continue
		}
		if mismatch := content.scan(fieldToSet(dst, field.index)); mismatch != nil {
			return mismatch.inField(QuoteIdentifier(field.name))
		}
	}
	return nil
}

// fieldToSet returns a field of a struct, and makes the embedded structs on the
// way to it whose pointers are nil.
func fieldToSet(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}
