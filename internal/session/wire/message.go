package wire

import (
	"errors"
	"time"

	"github.com/freeslot/freeslot"
)

// Protocol is the WebSocket subprotocol.
const Protocol = "freeslot.v1"

// MessageType says what a replica tells.
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

// The close codes of the protocol besides those of RFC 6455.
const (
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

// AppendWelcome appends a welcome message.
func AppendWelcome(dst []byte, w *Welcome) []byte {
	dst = appendString(append(dst, `{"type":"welcome","protocol":`...), w.Protocol)
	dst = appendString(append(dst, `,"session_id":`...), w.SessionID)
	dst = appendString(append(dst, `,"replica":`...), w.Replica)
	dst = appendString(append(dst, `,"version":`...), w.Version)
	dst = appendInt(append(dst, `,"max_payload_bytes":`...), int64(w.MaxPayloadBytes))
	dst = appendInt(append(dst, `,"max_batch":`...), int64(w.MaxBatch))
	dst = appendInt(append(dst, `,"max_frame_bytes":`...), int64(w.MaxFrameBytes))
	return append(dst, '}')
}

// AppendAccepted appends an accepted message. index is NoIndex outside batches,
// position is 0 unless the job waits.
func AppendAccepted(dst []byte, id string, index int, jobID string, position int) []byte {
	dst = appendString(append(dst, `{"type":"accepted","id":`...), id)
	dst = appendIndex(dst, index)
	dst = appendString(append(dst, `,"job_id":`...), jobID)
	return append(appendPositive(dst, `,"position":`, int64(position)), '}')
}

// AppendAssigned appends an assigned message. assignedAtMS is Redis' clock.
func AppendAssigned(dst []byte, jobID, node string, attempt int, assignedAtMS int64) []byte {
	dst = appendString(append(dst, `{"type":"assigned","job_id":`...), jobID)
	dst = appendString(append(dst, `,"node":`...), node)
	dst = appendInt(append(dst, `,"attempt":`...), int64(attempt))
	dst = appendInt(append(dst, `,"assigned_at_ms":`...), assignedAtMS)
	return append(dst, '}')
}

// AppendProgress appends a progress message. p.Value must be valid JSON.
func AppendProgress(dst []byte, jobID string, p *freeslot.Progress) []byte {
	dst = appendString(append(dst, `{"type":"progress","job_id":`...), jobID)
	return append(appendProgressFields(append(dst, ','), p), '}')
}

func appendProgressFields(dst []byte, p *freeslot.Progress) []byte {
	dst = appendInt(append(dst, `"attempt":`...), int64(p.Attempt))
	dst = appendInt(append(dst, `,"seq":`...), p.Seq)
	dst = appendInt(append(dst, `,"at_ms":`...), p.AtMS)
	dst = append(dst, `,"value":`...)
	if len(p.Value) == 0 {
		return append(dst, "null"...)
	}
	return appendUTF8(dst, p.Value)
}

// AppendResult appends a result message. s.Result must be valid JSON, except that what
// is not UTF-8 in it becomes U+FFFD.
func AppendResult(dst []byte, s *freeslot.JobStatus) []byte {
	dst = append(dst, `{"type":"result","job":`...)
	return append(appendStatus(dst, s), '}')
}

// AppendStatus appends a status message. s.Result is as for AppendResult.
func AppendStatus(dst []byte, id string, s *freeslot.JobStatus) []byte {
	dst = appendString(append(dst, `{"type":"status","id":`...), id)
	dst = append(dst, `,"job":`...)
	return append(appendStatus(dst, s), '}')
}

// AppendDetached appends a detached message.
func AppendDetached(dst []byte, jobID string) []byte {
	return appendString(append(dst, `{"type":"detached","job_id":`...), jobID, '}')
}

// AppendPong appends a pong message.
func AppendPong(dst []byte, id string) []byte {
	return appendString(append(dst, `{"type":"pong","id":`...), id, '}')
}

// AppendGoaway appends a goaway message.
func AppendGoaway(dst []byte, reason string) []byte {
	return appendString(append(dst, `{"type":"goaway","reason":`...), reason, '}')
}

// AppendError appends an error message. id and jobID are left out when empty,
// index when it is NoIndex.
func AppendError(dst []byte, id string, index int, jobID string, e *freeslot.Error) []byte {
	dst = append(dst, `{"type":"error"`...)
	if id != "" {
		dst = appendString(append(dst, `,"id":`...), id)
	}
	dst = appendIndex(dst, index)
	if jobID != "" {
		dst = appendString(append(dst, `,"job_id":`...), jobID)
	}
	dst = append(dst, ',')
	dst = appendErrorFields(dst, e)
	return append(dst, '}')
}

// AppendErrorBody appends e as the JSON body of an HTTP response.
func AppendErrorBody(dst []byte, e *freeslot.Error) []byte {
	return append(appendErrorFields(append(dst, '{'), e), '}')
}

// errorBody is a freeslot.Error as it stands in JSON.
type errorBody struct {
	Code         freeslot.Code  `json:"code"`
	Message      string         `json:"message"`
	Field        string         `json:"field,omitempty"`
	RetryAfterMS int64          `json:"retry_after_ms,omitempty"`
	Breakdown    map[string]int `json:"breakdown,omitempty"`
}

func appendErrorFields(dst []byte, e *freeslot.Error) []byte {
	dst = appendString(append(dst, `"code":`...), string(e.Code))
	dst = appendString(append(dst, `,"message":`...), e.Message)
	if e.Field != "" {
		dst = appendString(append(dst, `,"field":`...), e.Field)
	}
	if e.RetryAfter > 0 {
		// Rounded up: 0 would say "at once".
		ms := (e.RetryAfter + time.Millisecond - 1) / time.Millisecond
		dst = appendInt(append(dst, `,"retry_after_ms":`...), int64(ms))
	}
	if len(e.Breakdown) > 0 {
		dst = append(dst, `,"breakdown":{`...)
		for i, name := range sortedKeys(e.Breakdown) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, name), ':')
			dst = appendInt(dst, int64(e.Breakdown[name]))
		}
		dst = append(dst, '}')
	}
	return dst
}

func appendIndex(dst []byte, index int) []byte {
	if index == NoIndex {
		return dst
	}
	return appendInt(append(dst, `,"index":`...), int64(index))
}

func appendStatus(dst []byte, s *freeslot.JobStatus) []byte {
	dst = appendString(append(dst, `{"job_id":`...), s.ID)
	dst = appendString(append(dst, `,"tenant":`...), s.Tenant)
	dst = appendString(append(dst, `,"service":`...), s.Service)
	if s.Class != "" {
		dst = appendString(append(dst, `,"class":`...), s.Class)
	}
	dst = appendString(append(dst, `,"state":`...), string(s.State))
	dst = appendString(append(dst, `,"node":`...), s.Node)
	dst = appendInt(append(dst, `,"attempt":`...), int64(s.Attempt))
	dst = appendInt(append(dst, `,"slots":`...), int64(s.Slots))
	if len(s.Result) > 0 {
		dst = appendUTF8(append(dst, `,"result":`...), s.Result)
	}
	if s.Error != nil {
		dst = appendString(append(dst, `,"error":{"code":`...), s.Error.Code)
		dst = appendString(append(dst, `,"message":`...), s.Error.Message, '}')
	}
	if s.Progress != nil {
		dst = append(appendProgressFields(append(dst, `,"progress":{`...), s.Progress), '}')
	}
	dst = appendPositive(dst, `,"failures":`, int64(s.Failures))
	dst = appendPositive(dst, `,"priority":`, int64(s.Priority))
	dst = appendPositive(dst, `,"deadline_ms":`, s.DeadlineMS)
	dst = appendPositive(dst, `,"run_at_ms":`, s.RunAtMS)
	dst = appendPositive(dst, `,"position":`, int64(s.Position))
	dst = appendInt(append(dst, `,"submitted_at_ms":`...), s.SubmittedAtMS)
	dst = appendInt(append(dst, `,"assigned_at_ms":`...), s.AssignedAtMS)
	return append(appendPositive(dst, `,"finished_at_ms":`, s.FinishedAtMS), '}')
}

// appendPositive appends a member that is left out when it is 0.
func appendPositive(dst []byte, member string, n int64) []byte {
	if n == 0 {
		return dst
	}
	return appendInt(append(dst, member...), n)
}

// AsError makes any error one that the protocol can carry. What is not a
// *freeslot.Error becomes CodeInternal without its text, which is for the log,
// not for clients.
func AsError(err error) *freeslot.Error {
	var e *freeslot.Error
	if errors.As(err, &e) {
		return e
	}
	return &freeslot.Error{Code: freeslot.CodeInternal, Message: "internal error, see the replica's log"}
}
