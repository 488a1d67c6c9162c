package call

import (
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// Place is where in a module's source something stands.
type Place struct {
	// Package is the import path of its package.
	Package string
	// File is the path of its file, as the compiler was told.
	File string
}

// Topic is a topic as its package declared it.
type Topic struct {
	Name string
	Place
	// Event is the type of its events.
	Event       reflect.Type
	Retain      time.Duration
	RetainBytes int64
}

// Subscription is a subscription as its package declared it.
type Subscription struct {
	Name string
	Place
	Topic Topic
	// FromLatest and Parallel are as schema.Subscription has them.
	FromLatest bool
	Parallel   int
}

// Function is a function of a module.
type Function struct {
	// Name is its name in its package.
	Name string
	Place
}

// FunctionOf names a function. A function literal is named after the function
// it stands in.
func FunctionOf(f any) Function {
	described := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	pkg, name := cutName(described.Name())
	file, _ := described.FileLine(described.Entry())
	return Function{Name: name, Place: Place{Package: pkg, File: file}}
}

// Caller is the place of the code that calls, skip frames above the function
// that asks.
func Caller(skip int) Place {
	var pcs [1]uintptr
	runtime.Callers(skip+2, pcs[:])
	frame, _ := runtime.CallersFrames(pcs[:]).Next()
	pkg, _ := cutName(frame.Function)
	return Place{Package: pkg, File: frame.File}
}

// cutName reads a function's name as the runtime writes it: the import path,
// whose last element is escaped, a dot, and the name.
func cutName(full string) (pkg, name string) {
	last := strings.LastIndexByte(full, '/') + 1
	element, name, _ := strings.Cut(full[last:], ".")
	if unescaped, err := url.PathUnescape(element); err == nil {
		element = unescaped
	}
	return full[:last] + element, name
}

// String returns package.Name, with the package's whole path.
func (f Function) String() string { return f.Package + "." + f.Name }

// Verb is the name of the verb that the function is.
func (f Function) Verb() string { return schema.LowerFirst(f.Name) }
