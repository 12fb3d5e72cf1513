package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// String is "job:n".
func (a Attempt) String() string { return a.Job + ":" + strconv.Itoa(a.N) }

// MarshalText is String.
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

// DecodeRequests calls each for the messages of a frame from an agent, in order, until it returns an
// error, which is returned. An error of its own is a *freeslot.Error: the frame is no message. Then each
// may have been called for the messages before.
func DecodeRequests(frame []byte, each func(*Request) error) error { return decode(frame, each) }

// DecodeAnswers is DecodeRequests for a frame from a gateway.
func DecodeAnswers(frame []byte, each func(*Answer) error) error { return decode(frame, each) }

func decode[T any](frame []byte, each func(*T) error) error {
	frame = bytes.TrimLeft(frame, " \t\r\n")
	if len(frame) == 0 || frame[0] != '[' {
		return decodeOne(frame, "frame", each)
	}
	// Not into structs: "[{},{},…" would take a hundred times its own size.
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

// Append appends the JSON of a *Request or an *Answer to dst. Values of jobs and handlers are left as
// they are, but for the space in them.
func Append(dst []byte, message any) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false) // a "<" would take six bytes, and results would change on their way
	if err := encoder.Encode(message); err != nil {
		return dst, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
