package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/jsonscan"
)

// Message is a message from a replica. Which fields are set depends on Type.
type Message struct {
	// Type can be one that this package does not know: ignore it.
	Type MessageType
	ID   string
	// Index is the position in the batch; NoIndex when the message has none.
	Index int
	JobID string
	// Position is set for TypeAccepted when the job waits.
	Position int
	// Node, Attempt and AssignedAtMS are set for TypeAssigned.
	Node         string
	Attempt      int
	AssignedAtMS int64
	// Progress is set for TypeProgress, as is Attempt.
	Progress freeslot.Progress
	// Job is set for TypeResult and TypeStatus.
	Job freeslot.JobStatus
	// Error is set for TypeError, and may be nil even then if the replica left
	// out everything that it could say.
	Error *freeslot.Error
	// Reason is set for TypeGoaway.
	Reason string
	// Welcome is set for TypeWelcome.
	Welcome Welcome
}

// ErrMalformed is returned for a frame that is no message of the protocol.
var ErrMalformed = errors.New("malformed message")

// DecodeMessages calls fn for each message of a frame: the object that it is, or
// the elements of the array. The message is reused by the next call; what it
// points to is not. fn must not keep the *Message.
func DecodeMessages(frame []byte, fn func(*Message)) error {
	c := cursor{data: frame}
	m := Message{Index: NoIndex}
	if c.peek() != '[' {
		if p := c.message(&m); p != nil {
			return p.asMalformed()
		}
		fn(&m)
		return c.end().asMalformed()
	}
	c.pos++
	for i := 0; ; i++ {
		ok, p := c.element(i == 0)
		if p != nil {
			return p.asMalformed()
		}
		if !ok {
			return c.end().asMalformed()
		}
		m = Message{Index: NoIndex}
		if p := c.message(&m); p != nil {
			return p.at(i).asMalformed()
		}
		fn(&m)
	}
}

func (p *problem) asMalformed() error {
	if p == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrMalformed, p.asError().Message)
}

// eachMember calls field with every key of an object; field returns false to
// have the value skipped. null counts as absent, except for a job's result.
func (c *cursor) eachMember(field func(key []byte) (known bool, p *problem)) *problem {
	if p := c.openObject(); p != nil {
		return p
	}
	for first := true; ; first = false {
		key, ok, p := c.member(first)
		if p != nil || !ok {
			return p
		}
		known := false
		if c.peek() != 'n' || string(key) == "result" {
			known, p = field(key)
		}
		if !known && p == nil {
			_, p = c.value()
		}
		if p != nil {
			return p.in(fieldName(key))
		}
	}
}

func (c *cursor) message(m *Message) *problem {
	p := c.eachMember(func(key []byte) (bool, *problem) {
		switch string(key) {
		case "type":
			return c.into((*string)(&m.Type))
		case "id":
			return c.into(&m.ID)
		case "index":
			return c.intoInt(&m.Index)
		case "job_id":
			return c.into(&m.JobID)
		case "position":
			return c.intoInt(&m.Position)
		case "node":
			return c.into(&m.Node)
		case "attempt":
			return c.intoInt(&m.Attempt)
		case "assigned_at_ms":
			return c.intoInt64(&m.AssignedAtMS)
		case "seq", "at_ms", "value":
			return true, c.progressField(key, &m.Progress)
		case "job":
			return true, c.status(&m.Job)
		case "reason":
			return c.into(&m.Reason)
		case "protocol":
			return c.into(&m.Welcome.Protocol)
		case "session_id":
			return c.into(&m.Welcome.SessionID)
		case "replica":
			return c.into(&m.Welcome.Replica)
		case "version":
			return c.into(&m.Welcome.Version)
		case "max_payload_bytes":
			return c.intoInt(&m.Welcome.MaxPayloadBytes)
		case "max_batch":
			return c.intoInt(&m.Welcome.MaxBatch)
		case "max_frame_bytes":
			return c.intoInt(&m.Welcome.MaxFrameBytes)
		case "code", "message", "field", "retry_after_ms", "breakdown":
			if m.Error == nil {
				m.Error = &freeslot.Error{}
			}
			return true, c.errorField(key, m.Error)
		default:
			return false, nil
		}
	})
	if m.Type == TypeProgress {
		m.Progress.Attempt = m.Attempt
		m.Progress.Value = orNull(m.Progress.Value)
	}
	return p
}

// orNull stands for a value that was null, which counts as absent.
func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}

func (c *cursor) progressField(key []byte, to *freeslot.Progress) (p *problem) {
	switch string(key) {
	case "attempt":
		_, p = c.intoInt(&to.Attempt)
	case "seq":
		_, p = c.intoInt64(&to.Seq)
	case "at_ms":
		_, p = c.intoInt64(&to.AtMS)
	case "value":
		to.Value, p = c.json()
	default:
		_, p = c.value()
	}
	return p
}

func (c *cursor) progress(to *freeslot.Progress) *problem {
	p := c.eachMember(func(key []byte) (bool, *problem) { return true, c.progressField(key, to) })
	to.Value = orNull(to.Value)
	return p
}

func (c *cursor) errorField(key []byte, e *freeslot.Error) (p *problem) {
	switch string(key) {
	case "code":
		_, p = c.into((*string)(&e.Code))
	case "message":
		_, p = c.into(&e.Message)
	case "field":
		_, p = c.into(&e.Field)
	case "retry_after_ms":
		var ms int64
		_, p = c.intoInt64(&ms)
		e.RetryAfter = time.Duration(ms) * time.Millisecond
	case "breakdown":
		e.Breakdown = map[string]int{}
		p = c.eachMember(func(name []byte) (bool, *problem) {
			n, p := c.integer()
			e.Breakdown[string(name)] = int(n)
			return true, p
		})
	}
	return p
}

func (c *cursor) status(s *freeslot.JobStatus) *problem {
	return c.eachMember(func(key []byte) (bool, *problem) {
		switch string(key) {
		case "job_id":
			return c.into(&s.ID)
		case "tenant":
			return c.into(&s.Tenant)
		case "service":
			return c.into(&s.Service)
		case "class":
			return c.into(&s.Class)
		case "state":
			return c.into((*string)(&s.State))
		case "node":
			return c.into(&s.Node)
		case "attempt":
			return c.intoInt(&s.Attempt)
		case "slots":
			return c.intoInt(&s.Slots)
		case "result":
			return true, c.result(s)
		case "error":
			s.Error = &freeslot.JobError{}
			return true, c.jobError(s.Error)
		case "progress":
			s.Progress = &freeslot.Progress{}
			return true, c.progress(s.Progress)
		case "failures":
			return c.intoInt(&s.Failures)
		case "priority":
			return c.intoInt(&s.Priority)
		case "deadline_ms":
			return c.intoInt64(&s.DeadlineMS)
		case "run_at_ms":
			return c.intoInt64(&s.RunAtMS)
		case "position":
			return c.intoInt(&s.Position)
		case "submitted_at_ms":
			return c.intoInt64(&s.SubmittedAtMS)
		case "assigned_at_ms":
			return c.intoInt64(&s.AssignedAtMS)
		case "finished_at_ms":
			return c.intoInt64(&s.FinishedAtMS)
		default:
			return false, nil
		}
	})
}

func (c *cursor) result(s *freeslot.JobStatus) (p *problem) {
	s.Result, p = c.json()
	return p
}

// json is a copy of the next value.
func (c *cursor) json() (json.RawMessage, *problem) {
	text, p := c.value()
	if p != nil {
		return nil, p
	}
	if !jsonscan.IsValid(text) {
		return nil, &problem{text: "is not valid JSON"}
	}
	return bytes.Clone(text), nil
}

func (c *cursor) jobError(e *freeslot.JobError) *problem {
	return c.eachMember(func(key []byte) (bool, *problem) {
		switch string(key) {
		case "code":
			return c.into(&e.Code)
		case "message":
			return c.into(&e.Message)
		default:
			return false, nil
		}
	})
}

func (c *cursor) into(dst *string) (bool, *problem) {
	s, p := c.string()
	*dst = s
	return true, p
}

func (c *cursor) intoInt(dst *int) (bool, *problem) {
	n, p := c.integer()
	*dst = int(n)
	return true, p
}

func (c *cursor) intoInt64(dst *int64) (bool, *problem) {
	n, p := c.integer()
	*dst = n
	return true, p
}
