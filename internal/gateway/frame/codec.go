package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
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
		return fmt.Errorf("attempt %q, expected job:number", text)
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
	frame = bytes.TrimLeft(frame, " \t\r\n")
	if len(frame) == 0 || frame[0] != '[' {
		return decodeOne(frame, "frame", each)
	}
	// Do not decode into structs: "[{},{},…" would take a hundred times its own size.
	var all []json.RawMessage
	if err := json.Unmarshal(frame, &all); err != nil {
		return freeslot.Invalid("frame", "is no array of messages: %v", err)
	}
	for i := range all {
		if err := decodeOne(all[i], "frame["+strconv.Itoa(i)+"]", each); err != nil {
			return err
		}
	}
	return nil
}

func decodeOne[T any](text []byte, path string, each func(*T) error) error {
	var one T
	if len(text) == 0 || text[0] != '{' {
		return freeslot.Invalid(path, "is no message, expected an object")
	}
	if err := json.Unmarshal(text, &one); err != nil {
		return freeslot.Invalid(path, "is no message: %v", err)
	}
	return each(&one)
}

// Append appends the JSON of a *Request or an *Answer to dst. It leaves the values of jobs and
// handlers as they are, except for white space.
func Append(dst []byte, message any) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false) // a "<" would take six bytes, and results would change on their way
	if err := encoder.Encode(message); err != nil {
		return dst, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
