package wire

import (
	"encoding/json"
	"strconv"

	"github.com/freeslot/freeslot"
)

// cursor reads one JSON text in place.
type cursor struct {
	data []byte
	pos  int
}

// problem says what is wrong with a frame. Its path is completed on the way up,
// so that decoding a good frame never builds one.
type problem struct {
	field string
	text  string
}

func (p *problem) in(name string) *problem {
	switch {
	case p.field == "":
		p.field = name
	case p.field[0] == '[':
		p.field = name + p.field
	default:
		p.field = name + "." + p.field
	}
	return p
}

func (p *problem) at(index int) *problem { return p.in("[" + strconv.Itoa(index) + "]") }

func (p *problem) asError() *freeslot.Error {
	subject := p.field
	if subject == "" {
		subject = "frame"
	}
	return &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: p.field, Message: subject + " " + p.text}
}

func (c *cursor) space() {
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// peek returns the first byte of the next token, 0 at the end. A frame can hold
// a zero byte too; no token begins with one, so both end in the same refusal.
func (c *cursor) peek() byte {
	c.space()
	if c.pos < len(c.data) {
		return c.data[c.pos]
	}
	return 0
}

func (c *cursor) syntax(text string) *problem {
	return &problem{text: "is not valid JSON: " + text + " at byte " + strconv.Itoa(c.pos)}
}

// wrongType is the refusal of the next value where another kind is expected.
func (c *cursor) wrongType(want string) *problem {
	var got string
	switch b := c.peek(); {
	case b == '"':
		got = "a string"
	case b == '{':
		got = "an object"
	case b == '[':
		got = "an array"
	case c.startsWith("true") || c.startsWith("false"):
		got = "a boolean"
	case c.startsWith("null"):
		got = "null"
	case b == '-' || isDigit(b):
		got = "a number"
	default:
		return c.syntax("expected " + want)
	}
	return &problem{text: "is " + got + ", expected " + want}
}

// startsWith reports whether the next token is the literal.
func (c *cursor) startsWith(literal string) bool {
	ahead := *c
	return string(ahead.literal()) == literal
}

// openObject and openArray step over the bracket.
func (c *cursor) openObject() *problem { return c.open('{', "an object") }
func (c *cursor) openArray() *problem  { return c.open('[', "an array") }

func (c *cursor) open(bracket byte, want string) *problem {
	if c.peek() != bracket {
		return c.wrongType(want)
	}
	c.pos++
	return nil
}

// member steps to the value of an object's next member and returns its key,
// which is valid until the frame is overwritten. ok is false, and the closing
// brace consumed, at the object's end.
func (c *cursor) member(first bool) (key []byte, ok bool, p *problem) {
	b := c.peek()
	if b == '}' {
		c.pos++
		return nil, false, nil
	}
	if !first {
		if b != ',' {
			return nil, false, c.syntax("expected , or } after a member")
		}
		c.pos++
		b = c.peek()
	}
	if b != '"' {
		return nil, false, c.syntax("expected a member's name in double quotes")
	}
	if key, p = c.token(); p != nil {
		return nil, false, p
	}
	if c.peek() != ':' {
		return nil, false, c.syntax("expected : after a member's name")
	}
	c.pos++
	return key, true, nil
}

// element steps to an array's next element; ok is false, and the closing bracket
// consumed, at the array's end.
func (c *cursor) element(first bool) (ok bool, p *problem) {
	b := c.peek()
	if b == ']' {
		c.pos++
		return false, nil
	}
	if !first {
		if b != ',' {
			return false, c.syntax("expected , or ] after an element")
		}
		c.pos++
	}
	return true, nil
}

// end refuses anything after the one value of a frame.
func (c *cursor) end() *problem {
	if c.space(); c.pos < len(c.data) {
		return &problem{text: "is followed by further data at byte " + strconv.Itoa(c.pos) + ", expected one JSON value"}
	}
	return nil
}

func (c *cursor) string() (string, *problem) {
	if c.peek() != '"' {
		return "", c.wrongType("a string")
	}
	token, p := c.token()
	return string(token), p
}

// token reads the string that begins at pos. Without escapes the answer is a
// part of the frame itself.
func (c *cursor) token() ([]byte, *problem) {
	start := c.pos + 1
	for i := start; i < len(c.data); i++ {
		switch b := c.data[i]; {
		case b == '"':
			c.pos = i + 1
			return c.data[start:i], nil
		case b == '\\':
			return c.escapedToken(start - 1)
		case b < 0x20:
			c.pos = i
			return nil, c.syntax("control character in a string")
		}
	}
	return nil, c.syntax("string without an end")
}

// escapedToken leaves the rare string with escapes to encoding/json.
func (c *cursor) escapedToken(start int) ([]byte, *problem) {
	c.pos = start
	if p := c.skipString(); p != nil {
		return nil, p
	}
	var s string
	if err := json.Unmarshal(c.data[start:c.pos], &s); err != nil {
		c.pos = start
		return nil, c.syntax("malformed string")
	}
	return []byte(s), nil
}

func (c *cursor) skipString() *problem {
	for i := c.pos + 1; i < len(c.data); i++ {
		switch c.data[i] {
		case '"':
			c.pos = i + 1
			return nil
		case '\\':
			i++
		}
	}
	return c.syntax("string without an end")
}

// integer reads a number without fraction or exponent.
func (c *cursor) integer() (int64, *problem) {
	if b := c.peek(); b != '-' && !isDigit(b) {
		return 0, c.wrongType("an integer")
	}
	start := c.pos
	text := c.literal()
	digits := text
	if digits[0] == '-' {
		digits = digits[1:]
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || len(digits) > 1 && digits[0] == '0' || len(digits) > 0 && !isDigit(digits[0]) {
		c.pos = start
		return 0, &problem{text: "is " + strconv.Quote(string(clip(text))) + ", expected an integer"}
	}
	return n, nil
}

// value steps over any value and returns its text, a part of the frame.
//
// It finds the end by counting brackets outside strings and checks nothing else.
// The text is valid JSON exactly when json.Valid says so, and whenever it is
// valid its end was found rightly; so who keeps the text must have it checked.
func (c *cursor) value() ([]byte, *problem) {
	b := c.peek()
	start := c.pos
	switch b {
	case '"':
		if p := c.skipString(); p != nil {
			return nil, p
		}
	case '{', '[':
		if p := c.skipNested(); p != nil {
			return nil, p
		}
	default:
		if len(c.literal()) == 0 {
			return nil, c.syntax("expected a value")
		}
	}
	return c.data[start:c.pos], nil
}

func (c *cursor) skipNested() *problem {
	depth := 0
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case '"':
			if p := c.skipString(); p != nil {
				return p
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		c.pos++
		if depth == 0 {
			return nil
		}
	}
	return c.syntax("value without an end")
}

// literal reads what can be a number, true, false or null.
func (c *cursor) literal() []byte {
	start := c.pos
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ',', ']', '}', ' ', '\t', '\n', '\r':
			return c.data[start:c.pos]
		}
		c.pos++
	}
	return c.data[start:c.pos]
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// maxQuoted bounds what an error message repeats of the client's input.
const maxQuoted = 40

func clip(text []byte) []byte { return text[:min(len(text), maxQuoted)] }
