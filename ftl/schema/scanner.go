package schema

import (
	"strconv"
	"strings"
)

// scanner reads a text from the front. What it expects and does not find it
// throws as a *SyntaxError, which Parse catches.
type scanner struct {
	text   string
	offset int
}

// fail ends the reading with a mistake at an offset.
func (s *scanner) fail(offset int, problem string) {
	panic(newSyntaxError(s.text, offset, problem))
}

// expected ends the reading: something else should stand here.
func (s *scanner) expected(what string) {
	s.skip()
	s.fail(s.offset, "found "+s.found()+"; expected "+what)
}

// found says what stands here.
func (s *scanner) found() string {
	if s.offset == len(s.text) {
		return "the end"
	}
	if word := s.peekWhile(isIdentifierByte); word != "" {
		return word
	}
	for _, r := range s.text[s.offset:] {
		return strconv.QuoteRune(r)
	}
	return ""
}

// skip passes over spaces and comments, which run from // to the end of the
// line.
func (s *scanner) skip() {
	for s.offset < len(s.text) {
		rest := s.text[s.offset:]
		switch {
		case strings.HasPrefix(rest, "//"):
			if end := strings.IndexByte(rest, '\n'); end >= 0 {
				s.offset += end
			} else {
				s.offset = len(s.text)
			}
		case isSpace(rest[0]):
			s.offset++
		default:
			return
		}
	}
}

// end reports whether nothing is left.
func (s *scanner) end() bool {
	s.skip()
	return s.offset == len(s.text)
}

// at reports whether a sign stands here.
func (s *scanner) at(sign byte) bool {
	s.skip()
	return s.offset < len(s.text) && s.text[s.offset] == sign
}

// accept takes a sign if it stands here.
func (s *scanner) accept(sign byte) bool {
	if !s.at(sign) {
		return false
	}
	s.offset++
	return true
}

// sign takes a sign, or fails.
func (s *scanner) sign(sign byte) {
	if !s.accept(sign) {
		s.expected(strconv.QuoteRune(rune(sign)))
	}
}

// keyword takes a word if it stands here.
func (s *scanner) keyword(word string) bool {
	s.skip()
	if s.peekWhile(isIdentifierByte) != word {
		return false
	}
	s.offset += len(word)
	return true
}

// identifier takes an identifier, or fails.
func (s *scanner) identifier(what string) string {
	s.skip()
	word := s.peekWhile(isIdentifierByte)
	if !isIdentifier(word) {
		s.expected(what)
	}
	s.offset += len(word)
	return word
}

// name takes a lowerCamel name, or fails.
func (s *scanner) name(what string) string {
	s.skip()
	at := s.offset
	name := s.identifier(what)
	if !IsName(name) {
		s.fail(at, name+" is no name; "+acceptedName(name))
	}
	return name
}

// words takes what stands on the rest of the line, up to a closing brace.
func (s *scanner) words() (words []string, at int) {
	line := s.text[s.offset:]
	if end := strings.IndexAny(line, "\n}"); end >= 0 {
		line = line[:end]
	}
	if end := strings.Index(line, "//"); end >= 0 {
		line = line[:end]
	}
	at = s.offset + len(line) - len(strings.TrimLeft(line, " \t"))
	s.offset += len(line)
	return strings.Fields(line), at
}

// path takes what stands up to the next space.
func (s *scanner) path() string {
	for s.offset < len(s.text) && (s.text[s.offset] == ' ' || s.text[s.offset] == '\t') {
		s.offset++
	}
	path := s.peekWhile(func(c byte) bool { return !isSpace(c) })
	s.offset += len(path)
	return path
}

// quoted takes a string in quotes, or fails.
func (s *scanner) quoted() string {
	prefix, err := strconv.QuotedPrefix(s.text[s.offset:])
	if err != nil {
		s.fail(s.offset, "the quotes do not close on this line, or hold an escape that does not exist")
	}
	s.offset += len(prefix)
	text, _ := strconv.Unquote(prefix)
	return text
}

func (s *scanner) peekWhile(is func(byte) bool) string {
	end := s.offset
	for end < len(s.text) && is(s.text[end]) {
		end++
	}
	return s.text[s.offset:end]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isIdentifierByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// acceptedName says what name would be taken in place of one that is not.
func acceptedName(name string) string {
	if accepted := LowerCamel(name); IsName(accepted) && accepted != name {
		return "write " + accepted
	}
	return "names are lowerCamel, of " + formatCount(MaxNameBytes) + " letters and digits at most"
}
