package wire

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/freeslot/freeslot"
)

// Protocol is the WebSocket subprotocol.
const Protocol = "freeslot.v1"

// MessageType is the kind of a message.
type MessageType string

// The messages of the protocol.
const (
	TypeWelcome  MessageType = "welcome"
	TypeAccepted MessageType = "accepted"
	TypeAssigned MessageType = "assigned"
	TypeProgress MessageType = "progress"
	TypeResult   MessageType = "result"
	TypeStatus   MessageType = "status"
	TypeDetached MessageType = "detached"
	TypeError    MessageType = "error"
	TypePong     MessageType = "pong"
	TypeGoaway   MessageType = "goaway"
)

// MessageTypes lists every MessageType.
func MessageTypes() []MessageType {
	return []MessageType{
		TypeWelcome, TypeAccepted, TypeAssigned, TypeProgress, TypeResult, TypeStatus,
		TypeDetached, TypeError, TypePong, TypeGoaway,
	}
}

// The protocol's close codes, in addition to RFC 6455's.
const (
	// CloseRights: the client's token was removed, has expired, or has other rights now.
	CloseRights = 4003
	// CloseSlowClient: the client did not read fast enough.
	CloseSlowClient = 4008
	// CloseSilentClient: the client did not answer a ping.
	CloseSilentClient = 4009
)

// Welcome is the first message of a session.
type Welcome struct {
	Protocol        string `json:"protocol"`
	SessionID       string `json:"session_id"`
	Replica         string `json:"replica"`
	Version         string `json:"version"`
	MaxPayloadBytes int    `json:"max_payload_bytes"`
	MaxBatch        int    `json:"max_batch"`
	MaxFrameBytes   int    `json:"max_frame_bytes"`
}

// NoIndex is the index of answers that are not about a batch.
const NoIndex = -1

// AppendWelcome appends a welcome message.
func AppendWelcome(dst []byte, w *Welcome) []byte {
	return appendJSON(dst, &struct {
		Type MessageType `json:"type"`
		*Welcome
	}{TypeWelcome, w})
}

// sentMessage has the fields of most messages. A required field is never empty.
type sentMessage struct {
	Type         MessageType         `json:"type"`
	ID           string              `json:"id,omitempty"`
	Index        *int                `json:"index,omitempty"`
	JobID        string              `json:"job_id,omitempty"`
	Position     int                 `json:"position,omitempty"`
	Node         string              `json:"node,omitempty"`
	Attempt      int                 `json:"attempt,omitempty"`
	AssignedAtMS int64               `json:"assigned_at_ms,omitempty"`
	Job          *freeslot.JobStatus `json:"job,omitempty"`
	Reason       string              `json:"reason,omitempty"`
}

// AppendProgress appends a progress message. p.Value must be valid JSON.
func AppendProgress(dst []byte, jobID string, p *freeslot.Progress) []byte {
	progress := *p
	progress.Value = validUTF8(p.Value)
	return appendJSON(dst, &struct {
		Type  MessageType `json:"type"`
		JobID string      `json:"job_id"`
		*freeslot.Progress
	}{TypeProgress, jobID, &progress})
}

// AppendStatus appends a status message. s.Result is as for AppendResult.
func AppendStatus(dst []byte, id string, s *freeslot.JobStatus) []byte {
	return appendJSON(dst, &sentMessage{Type: TypeStatus, ID: id, Job: sent(s)})
}

// AppendDetached appends a detached message.
func AppendDetached(dst []byte, jobID string) []byte {
	return appendJSON(dst, &sentMessage{Type: TypeDetached, JobID: jobID})
}

// AppendPong appends a pong message.
func AppendPong(dst []byte, id string) []byte {
	return appendJSON(dst, &struct {
		Type MessageType `json:"type"`
		ID   string      `json:"id"`
	}{TypePong, id})
}

// AppendGoaway appends a goaway message.
func AppendGoaway(dst []byte, reason string) []byte {
	return appendJSON(dst, &sentMessage{Type: TypeGoaway, Reason: reason})
}

// AppendError appends an error message. Empty ids and NoIndex are left out.
func AppendError(dst []byte, id string, index int, jobID string, e *freeslot.Error) []byte {
	return appendJSON(dst, &struct {
		Type  MessageType `json:"type"`
		ID    string      `json:"id,omitempty"`
		Index *int        `json:"index,omitempty"`
		JobID string      `json:"job_id,omitempty"`
		errorBody
	}{TypeError, id, indexOrNone(index), jobID, bodyOf(e)})
}

// AppendErrorBody appends e as the JSON body of an HTTP response.
func AppendErrorBody(dst []byte, e *freeslot.Error) []byte {
	body := bodyOf(e)
	return appendJSON(dst, &body)
}

// errorBody is a freeslot.Error in JSON.
type errorBody struct {
	Code         freeslot.Code  `json:"code"`
	Message      string         `json:"message"`
	Field        string         `json:"field,omitempty"`
	RetryAfterMS int64          `json:"retry_after_ms,omitempty"`
	Breakdown    map[string]int `json:"breakdown,omitempty"`
}

func bodyOf(e *freeslot.Error) errorBody {
	// Rounded up: 0 would mean "at once".
	ms := (max(e.RetryAfter, 0) + time.Millisecond - 1) / time.Millisecond
	return errorBody{e.Code, e.Message, e.Field, int64(ms), e.Breakdown}
}

func indexOrNone(index int) *int {
	if index == NoIndex {
		return nil
	}
	return &index
}

// sent returns a status in the form for sessions, without the reason that holds the job back, and
// without the node that it waits for: only HTTP has these.
func sent(s *freeslot.JobStatus) *freeslot.JobStatus {
	status := *s
	status.HeldBy, status.WaitsForPool, status.NodeByMS, status.Result = "", "", 0, validUTF8(s.Result)
	if s.Progress != nil {
		progress := *s.Progress
		progress.Value = validUTF8(progress.Value)
		status.Progress = &progress
	}
	return &status
}

// validUTF8 corrects JSON that may have been stored before results were checked for UTF-8. A frame
// that is not UTF-8 would end the session of each client that asks for it. In valid JSON such bytes
// can only be within strings, so the JSON stays valid.
func validUTF8(raw stdjson.RawMessage) stdjson.RawMessage {
	if utf8.Valid(raw) {
		return raw
	}
	return bytes.ToValidUTF8(raw, []byte("\ufffd"))
}

// writing copies payloads and results as they are, except for white space. In other texts, bytes
// that are not UTF-8 become U+FFFD.
var writing = json.JoinOptions(
	jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true),
	jsontext.PreserveRawStrings(true),
	jsonv1.OmitEmptyWithLegacySemantics(true),
	json.Deterministic(true),
)

func appendJSON(dst []byte, v any) []byte {
	text, err := json.Marshal(v, writing)
	if err != nil {
		// The stored result is not JSON, after an edit by hand, or too deep for a message.
		return AppendError(dst, "", NoIndex, "", AsError(err))
	}
	return append(dst, text...)
}

// AsError turns any error into one that the protocol can carry. Any other error than a
// *freeslot.Error becomes CodeInternal without its text, which is for the log and not for clients.
func AsError(err error) *freeslot.Error {
	var e *freeslot.Error
	if errors.As(err, &e) {
		return e
	}
	return &freeslot.Error{Code: freeslot.CodeInternal, Message: "internal error, see the replica's log"}
}
