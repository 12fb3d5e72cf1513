package frame

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/freeslot/freeslot"
)

// reading takes what encoding/json takes: names in any case, repeated names, null for anything, and
// escapes such as \ud800. Agents were written against that.
var reading = json.JoinOptions(
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
	json.MatchCaseInsensitiveNames(true),
	jsonv1.MatchCaseSensitiveDelimiter(true),
	jsonv1.MergeWithLegacySemantics(true),
)

// writing copies the values of jobs and handlers as they are, except for white space.
var writing = json.JoinOptions(
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
	jsontext.PreserveRawStrings(true),
	jsonv1.OmitEmptyWithLegacySemantics(true),
	json.FormatNilSliceAsNull(true),
	json.FormatNilMapAsNull(true),
	json.Deterministic(true),
)

// String returns "job:n".
func (a Attempt) String() string { return a.Job + ":" + strconv.Itoa(a.N) }

// MarshalText returns the text of String.
func (a Attempt) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads "job:n" with n from 1. A job id is not checked here.
func (a *Attempt) UnmarshalText(text []byte) error {
	job, number, _ := strings.Cut(string(text), ":")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || job == "" {
		return fmt.Errorf("attempt %.100q, expected job:number", text)
	}
	*a = Attempt{Job: job, N: n}
	return nil
}

// DecodeRequests calls each for the messages of an agent's frame, in order, until each returns an
// error, which DecodeRequests returns. If the frame is not a message, the error is a
// *freeslot.Error; each may then have been called for earlier messages of the frame.
func DecodeRequests(frame []byte, each func(*Request) error) error { return decode(frame, each) }

// DecodeAnswers does for a gateway's frame what DecodeRequests does for an agent's.
func DecodeAnswers(frame []byte, each func(*Answer) error) error { return decode(frame, each) }

func decode[T any](frame []byte, each func(*T) error) error {
	m := messages[T]{each: each}
	err := json.Unmarshal(frame, &m, reading)
	switch {
	case m.refused != nil:
		return m.refused
	case err != nil && m.array:
		return freeslot.Invalid("frame", "is no array of messages: %v", err)
	case err != nil:
		return freeslot.Invalid("frame", "is no message: %v", err)
	}
	return nil
}

// messages decodes one message after the other and hands each on at once: decoding
// "[{},{},…" into structs first would take a hundred times its own size.
type messages[T any] struct {
	each func(*T) error
	// array is true if the frame is an array, in which index is the place of the message.
	array bool
	index int
	// refused is the error of each, or of a message that is JSON but no message.
	refused error
}

// UnmarshalJSONFrom decodes one message, or an array of them.
func (m *messages[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return m.one(d)
	}
	m.array = true
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for ; d.PeekKind() != ']'; m.index++ {
		if err := m.one(d); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func (m *messages[T]) one(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		if _, err := d.ReadValue(); err != nil {
			return err
		}
		return m.refuse("is no message, expected an object")
	}
	message := new(T)
	err := json.UnmarshalDecode(d, message)
	if _, malformed := errors.AsType[*jsontext.SyntacticError](err); malformed {
		return err
	}
	if err != nil {
		return m.refuse("is no message: " + err.Error())
	}
	m.refused = m.each(message)
	return m.refused
}

func (m *messages[T]) refuse(text string) error {
	path := "frame"
	if m.array {
		path += "[" + strconv.Itoa(m.index) + "]"
	}
	m.refused = freeslot.Invalid(path, "%s", text)
	return m.refused
}

// Append appends the JSON of a *Request or an *Answer to dst. It leaves the values of jobs and
// handlers as they are, except for white space.
func Append(dst []byte, message any) ([]byte, error) {
	text, err := json.Marshal(message, writing)
	return append(dst, text...), err
}
