package schema

import (
	"strings"
	"unicode"

	"github.com/tidemarkdb/tidemark/fault"
)

// MaxNameBytes bounds every name. A topic is stored under its module's name and
// its own, joined by an underscore.
const MaxNameBytes = 100

// sdkModule is the name that the SDK's own types stand under.
const sdkModule = "ftl"

// reservedModules are the names that no module has, with the reason.
var reservedModules = map[string]string{
	sdkModule: "the SDK's own types stand under that name",
	"topic":   "the tables of what is deployed begin with that name and an underscore, as its topics would",
}

// IsName reports whether text is a lowerCamel name: an ASCII letter in lower
// case, then ASCII letters and digits, MaxNameBytes at most.
func IsName(text string) bool {
	return isIdentifier(text) && text[0] >= 'a' && text[0] <= 'z' && !strings.Contains(text, "_") && len(text) <= MaxNameBytes
}

// CheckModuleName returns fault.InvalidClause, saying what would be accepted, for
// a text that may not name a module: it is no lowerCamel name, or a reserved one.
func CheckModuleName(text string) error {
	if reason, reserved := reservedModules[text]; reserved {
		return fault.New(fault.InvalidClause, "no module can be called %s: %s; give it another name", text, reason)
	}
	if !IsName(text) {
		return fault.New(fault.InvalidClause, "%q is no name of a module; %s", text, acceptedName(text))
	}
	return nil
}

// LowerCamel makes a name of text, for saying what would have been accepted:
// what is no letter or digit is left out and the letter after it raised. It
// returns "" where nothing is left.
func LowerCamel(text string) string {
	var name strings.Builder
	raise := false
	for _, r := range text {
		letter := r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
		switch {
		case !letter:
			raise = name.Len() > 0
			continue
		case name.Len() == 0 && unicode.IsDigit(r):
			continue
		case raise:
			r = unicode.ToUpper(r)
		}
		raise = false
		name.WriteRune(r)
	}
	return LowerFirst(name.String())
}

// LowerFirst makes the name of a declaration of that of its Go function: the first
// letter goes down, and with it a run of capitals, so that HTTPCall
// becomes httpCall, ID id, Payins payins.
func LowerFirst(text string) string {
	upper := len(text) - len(strings.TrimLeft(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	if upper > 1 && upper < len(text) && text[upper] >= 'a' && text[upper] <= 'z' {
		upper--
	}
	return strings.ToLower(text[:upper]) + text[upper:]
}

// isIdentifier reports whether text is an ASCII letter or underscore and then
// letters, underscores and digits.
func isIdentifier(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return text != ""
}

// parseRef reads module.name, or a name of the module that is given.
func parseRef(text, module string) (Ref, bool) {
	r := Ref{Module: module, Name: text}
	if before, after, found := strings.Cut(text, "."); found {
		r = Ref{Module: before, Name: after}
	}
	return r, isIdentifier(r.Module) && isIdentifier(r.Name)
}
