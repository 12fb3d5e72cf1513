package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/freeslot/freeslot"
)

// Message is a message from a replica. Type tells which fields are set.
type Message struct {
	// Type can be unknown to this package; ignore such a message.
	Type MessageType `json:"type"`
	ID   string      `json:"id"`
	// Index is the position in the batch; NoIndex if the message has none.
	Index int    `json:"index"`
	JobID string `json:"job_id"`
	// Position is set for TypeAccepted if the job waits.
	Position int `json:"position"`
	// Node, Progress.Attempt and AssignedAtMS are set for TypeAssigned.
	Node         string `json:"node"`
	AssignedAtMS int64  `json:"assigned_at_ms"`
	// Progress is set for TypeProgress.
	freeslot.Progress
	// Job is set for TypeResult and TypeStatus.
	Job freeslot.JobStatus `json:"job"`
	// Error is set for TypeError, unless the message has no code.
	Error *freeslot.Error `json:"-"`
	// Reason is set for TypeGoaway.
	Reason string `json:"reason"`
	// Welcome is set for TypeWelcome.
	Welcome
}

// ErrMalformed is returned for a frame that is not a message of the protocol.
var ErrMalformed = errors.New("malformed message")

// lenient ignores unknown fields, so that a replica can be newer than its clients. null counts as
// absent.
var lenient = json.JoinOptions(
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
	jsonv1.MergeWithLegacySemantics(true),
)

// DecodeMessages calls fn for each message of a frame: its one object, or the elements of its
// array. The next call reuses the Message, but not the values it points to: fn must not keep the
// *Message.
func DecodeMessages(frame []byte, fn func(*Message)) error {
	if err := json.Unmarshal(frame, &messages{fn: fn}, lenient); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// messages decodes one message after the other and hands each to fn.
type messages struct {
	fn func(*Message)
	in struct {
		Message
		errorBody
	}
}

// UnmarshalJSONFrom decodes one message, or an array of them.
func (m *messages) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return m.one(d)
	}
	return decodeEach(d, '[', ']', nil, func() error { return m.one(d) })
}

func (m *messages) one(d *jsontext.Decoder) error {
	in := &m.in
	in.Message, in.errorBody = Message{Index: NoIndex}, errorBody{}
	if err := json.UnmarshalDecode(d, in); err != nil {
		return err
	}
	if in.Type == TypeError && in.Code != "" {
		in.Error = &freeslot.Error{
			Code: in.Code, Message: in.errorBody.Message, Field: in.Field,
			RetryAfter: time.Duration(in.RetryAfterMS) * time.Millisecond, Breakdown: in.Breakdown,
		}
	}
	m.fn(&in.Message)
	return nil
}
