package ftlwire

import "strings"

// Namespace is the namespace of the store that modules are deployed in, and
// DefaultDatabase its database where none is named.
const (
	Namespace       = "ftl"
	DefaultDatabase = "main"
)

// Names of modules and of what they declare hold neither an underscore nor a
// dot, so the joins below cannot make two things one.

// StoreTopic is the name of a module's topic in the store.
func StoreTopic(module, topic string) string { return module + "_" + topic }

// StoreGroup is the name of a module's subscription as a group in the store.
func StoreGroup(module, subscription string) string { return module + "." + subscription }

// SplitGroup is the way back from StoreGroup.
func SplitGroup(group string) (module, subscription string, ok bool) {
	return strings.Cut(group, ".")
}
