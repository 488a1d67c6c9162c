package value_test

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/value"
)

func Example() {
	message := value.Fields(value.Object{
		"payment": value.Record(value.RecordID{Table: "payments", Key: value.Int(17)}),
		"cents":   value.Int(9007199254740993), // more than a float64 holds
		"at":      value.Datetime(time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)),
		"note":    value.None(), // the same as no note
	})

	// Storage and the binary wire.
	encoded, err := message.AppendCBOR(nil)
	if err != nil {
		panic(err)
	}
	decoded, err := value.DecodeCBOR(encoded)
	if err != nil {
		panic(err)
	}
	fmt.Println(value.Equal(message, decoded))

	// A statement, and a JSON answer.
	fmt.Println(decoded)
	text, err := decoded.AppendJSON(nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
	// Output:
	// true
	// { at: d'2026-01-31T10:00:00Z', cents: 9007199254740993, payment: payments:17 }
	// {"at":"2026-01-31T10:00:00Z","cents":9007199254740993,"payment":"payments:17"}
}

func ExampleOf() {
	type Line struct {
		SKU   string `json:"sku"`
		Count int    `json:"count,omitempty"`
	}
	v, err := value.Of(map[string]any{"lines": []Line{{"a-1", 2}, {"b-2", 0}}, "wait": 90 * time.Minute})
	fmt.Println(v, err)

	_, err = value.Of([]any{1, make(chan int)})
	fmt.Println(err)
	// Output:
	// { lines: [{ count: 2, sku: 'a-1' }, { sku: 'b-2' }], wait: 1h30m } <nil>
	// TypeMismatch: [1]: a Go chan int is no value
}

func ExampleValue_Scan() {
	v, err := value.ParseJSON([]byte(`{"sku":"a-1","count":300}`))
	if err != nil {
		panic(err)
	}
	var line struct {
		SKU   string  `json:"sku"`
		Count int     `json:"count"`
		Note  *string `json:"note"`
	}
	fmt.Println(v.Scan(&line), line.SKU, line.Count, line.Note)

	var narrow struct {
		Count int8 `json:"count"`
	}
	fmt.Println(v.Scan(&narrow))
	// Output:
	// <nil> a-1 300 <nil>
	// TypeMismatch: count: the int 300 is outside what a Go int8 holds
}

func ExampleValue_Size() {
	// What MAX BYTES and RETAIN BYTES measure.
	size, err := value.Fields(value.Object{"v": value.String("aaaa")}).Size()
	fmt.Println(size, err)
	// Output: 8 <nil>
}

func ExampleParseJSON() {
	for _, text := range []string{`1`, `1.0`, `9223372036854775808`, `{"a":1,"a":2}`} {
		v, err := value.ParseJSON([]byte(text))
		fmt.Println(v.Kind(), v, err)
	}
	// Output:
	// int 1 <nil>
	// float 1.0 <nil>
	// none none TypeMismatch: JSON, at byte 0: the int 9223372036854775808 is outside -9223372036854775808 to 9223372036854775807; with a fraction or an exponent it is a float
	// none none TypeMismatch: JSON, at byte 7: the field "a" is there twice
}

func ExampleCompare() {
	fmt.Println(value.Compare(value.Int(1<<53+1), value.Float(1<<53)))
	fmt.Println(value.Equal(value.Int(1), value.Float(1)))
	fmt.Println(value.Compare(value.Int(1000), value.String("1")))
	// Output:
	// 1
	// true
	// -1
}

func ExampleAppendKey() {
	// A key in front of other bytes, as an index has it.
	encoded, err := value.AppendKey(nil, value.String("o-17"))
	if err != nil {
		panic(err)
	}
	key, rest, err := value.DecodeKey(append(encoded, "position"...))
	fmt.Printf("%s %s %v\n", key, rest, err)
	// Output: 'o-17' position <nil>
}

func ExampleRecordID_String() {
	fmt.Println(value.RecordID{Table: "events", Key: value.String("evt-7f3a")})
	// Output: events:'evt-7f3a'
}

func ExampleQuoteIdentifier() {
	fmt.Println(value.QuoteIdentifier("total"), value.QuoteIdentifier("unit price"))
	// Output: total `unit price`
}

func ExampleParseDuration() {
	fmt.Println(value.ParseDuration("1w12h"))
	// Output: 180h0m0s <nil>
}
