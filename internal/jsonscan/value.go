package jsonscan

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Form is what is known of a text.
type Form int

// The forms.
const (
	// Unsure texts are for encoding/json to judge: they are malformed, or in a form that is seldom.
	Unsure Form = iota
	// Valid texts are JSON in UTF-8.
	Valid
	// Compact texts are valid, and json.Marshal of a json.RawMessage copies them as they are.
	Compact
)

// maxDepth is how many arrays and objects may be open at a time; deeper texts are Unsure.
const maxDepth = 64

// Value reads the one value that data begins with, and returns where it ends. White space before a value is not taken.
// With Unsure the end means nothing.
func Value(data []byte) (end int, form Form) {
	s := scanner{data: data, form: Compact}
	if !s.value() {
		return 0, Unsure
	}
	return s.pos, s.form.unless(data[:s.pos], s.high)
}

// IsValid reports whether data is one JSON value in UTF-8, as utf8.Valid and json.Valid together do. White space may be
// around it.
func IsValid(data []byte) bool {
	if end, form := Value(data); form != Unsure && end == len(data) {
		return true
	}
	return utf8.Valid(data) && json.Valid(data)
}

// unless takes the form back where bytes beyond ASCII forbid it.
func (f Form) unless(text []byte, high bool) Form {
	switch {
	case !high:
		return f
	case !utf8.Valid(text):
		return Unsure
	// encoding/json escapes U+2028 and U+2029.
	case bytes.Contains(text, []byte("\u2028")) || bytes.Contains(text, []byte("\u2029")):
		return Valid
	}
	return f
}

type scanner struct {
	data []byte
	pos  int
	form Form
	// high is true once a byte beyond ASCII was read.
	high bool
	// objects has a bit for each open array or object, the innermost at the lowest place: 1 is an object.
	objects uint64
	depth   int
}

// value reads one value of any kind; false is Unsure.
func (s *scanner) value() bool {
	for {
		opened, ok := s.start()
		if !ok {
			return false
		}
		if opened {
			continue // with the first value in it
		}
		for { // behind a value
			if s.depth == 0 {
				return true
			}
			s.space()
			switch s.next() {
			case ',':
				if s.objects&1 == 1 {
					if s.space(); !s.key() {
						return false
					}
				}
			case '}':
				if s.objects&1 == 0 {
					return false
				}
				s.shut()
				continue
			case ']':
				if s.objects&1 == 1 {
					return false
				}
				s.shut()
				continue
			default:
				return false
			}
			break
		}
		s.space()
	}
}

// start reads a value that is no array or object, or an empty one, or begins one: then it stands at its first value.
func (s *scanner) start() (opened, ok bool) {
	switch b := s.next(); b {
	case '"':
		return false, s.text()
	case '{', '[':
		if s.depth == maxDepth {
			return false, false
		}
		s.depth++
		s.objects <<= 1
		if b == '{' {
			s.objects |= 1
		}
		s.space()
		if s.peek() == b+2 { // the bracket that shuts it
			s.pos++
			s.shut()
			return false, true
		}
		return true, b == '[' || s.key()
	case 't':
		return false, s.word("rue")
	case 'f':
		return false, s.word("alse")
	case 'n':
		return false, s.word("ull")
	default:
		s.pos--
		return false, s.number()
	}
}

func (s *scanner) shut() {
	s.depth--
	s.objects >>= 1
}

// key reads a member's name, the colon, and what space is behind it.
func (s *scanner) key() bool {
	if s.next() != '"' || !s.text() {
		return false
	}
	s.space()
	if s.next() != ':' {
		return false
	}
	s.space()
	return true
}

// next steps over a byte and returns it, 0 at the end.
func (s *scanner) next() byte {
	b := s.peek()
	s.pos++
	return b
}

func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
			s.form = Valid
		default:
			return
		}
	}
}

// plain are the bytes that stand in strings for themselves, in whatever encoding/json writes.
var plain = func() (t [256]bool) {
	for b := 0x20; b < utf8.RuneSelf; b++ {
		t[b] = b != '"' && b != '\\' && b != '<' && b != '>' && b != '&'
	}
	return t
}()

// text reads a string whose first quote was read.
func (s *scanner) text() bool {
	data, i := s.data, s.pos
	for {
		for i < len(data) && plain[data[i]] {
			i++
		}
		if i >= len(data) {
			return false
		}
		switch b := data[i]; {
		case b == '"':
			s.pos = i + 1
			return true
		case b >= utf8.RuneSelf:
			s.high = true
			i++
		case b == '\\':
			if i+1 >= len(data) || bytes.IndexByte([]byte(`"\/bfnrt`), data[i+1]) < 0 {
				return false // \u is for encoding/json
			}
			i += 2
		case b < 0x20:
			return false
		default: // < > &, which encoding/json escapes
			s.form = Valid
			i++
		}
	}
}

func (s *scanner) word(rest string) bool {
	end := s.pos + len(rest)
	if end > len(s.data) || string(s.data[s.pos:end]) != rest {
		return false
	}
	s.pos = end
	return true
}

// number is `-? (0 | [1-9][0-9]*) (\. [0-9]+)? ([eE] [+-]? [0-9]+)?`.
func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return false
	}
	if s.peek() == '.' {
		if s.pos++; !s.digits() {
			return false
		}
	}
	if b := s.peek(); b == 'e' || b == 'E' {
		s.pos++
		if b := s.peek(); b == '+' || b == '-' {
			s.pos++
		}
		return s.digits()
	}
	return true
}

// digits reads one or more.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}
