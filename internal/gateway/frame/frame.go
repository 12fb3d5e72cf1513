// Package frame is the codec of the WebSocket protocol freeslot.node.v1, by which agents reach
// Redis through a replica. Agents send a [Request], gateways an [Answer]. A frame is one message or
// an array of messages, in both directions. Both sides ignore unknown fields, so that either can be
// newer. docs/node-protocol.md is the page for authors of agents.
package frame

import (
	"encoding/json"

	"github.com/freeslot/freeslot"
)

// Protocol is the WebSocket subprotocol. The paths are where replicas serve it, and the messages
// that are too large for it.
const (
	Protocol     = "freeslot.node.v1"
	Path         = "/v1/node"
	CompletePath = Path + "/complete"
	SpecPath     = Path + "/spec"
)

// SessionHeader and NodeHeader tell in an HTTP request which session it belongs to.
const (
	SessionHeader = "Freeslot-Session"
	NodeHeader    = "Freeslot-Node"
)

// Bounds, which the welcome tells the agent.
const (
	MaxFrameBytes = 512 << 10 // of a frame from an agent: a progress with 64 reports fits
	InlineBytes   = 64 << 10  // of a result or spec in a frame; larger ones go by HTTP
	MaxRequests   = 256       // requests under way in a session
	MaxSlots      = 1024      // of a node
	MaxAttempts   = 2048      // named by one heartbeat
)

// Type is the kind of a message.
type Type string

// Messages that agents send.
const (
	TypeHello      Type = "hello"
	TypeRegister   Type = "register"
	TypeHeartbeat  Type = "heartbeat"
	TypeComplete   Type = "complete"
	TypeProgress   Type = "progress"
	TypeSpec       Type = "spec" // the answer has the same name
	TypeDeregister Type = "deregister"
)

// Messages that gateways send.
const (
	TypeWelcome      Type = "welcome"
	TypeRegistered   Type = "registered"
	TypeBeat         Type = "beat"
	TypeCompleted    Type = "completed"
	TypeProgressed   Type = "progressed"
	TypeDeregistered Type = "deregistered"
	TypeJobs         Type = "jobs"
	TypeCancel       Type = "cancel"
	TypeSync         Type = "sync"
	TypeGoaway       Type = "goaway"
	TypeError        Type = "error"
)

// Error codes that package freeslot does not have.
const (
	CodeSuperseded      freeslot.Code = "superseded"       // another epoch has the node
	CodeUnknownNode     freeslot.Code = "unknown_node"     // register again
	CodeNodeInUse       freeslot.Code = "node_in_use"      // the node lives under another token
	CodeStaleConnection freeslot.Code = "stale_connection" // a newer connection of this epoch exists
)

// Close codes of a gateway, in addition to WebSocket's own.
const (
	CloseDefect     = 4000 // no message, a message of unknown type, or no hello in time
	CloseRights     = 4003 // the token was removed, has expired, or is not for this node
	CloseSlow       = 4008 // the agent read too slowly
	CloseSilent     = 4009 // the agent did not answer a ping, or its node does not live
	CloseSuperseded = 4010 // another epoch has the node
	CloseReplaced   = 4011 // a newer connection of this epoch exists
)

// Attempt is one try of a job, in JSON as "job:n".
type Attempt struct {
	Job string
	N   int
}

// Delivery is an attempt that begins. If Job is empty, it is too large for the frame: ask for its
// spec.
type Delivery struct {
	Attempt Attempt       `json:"attempt"`
	Tenant  string        `json:"tenant"`
	Job     *freeslot.Job `json:"job,omitempty"`
}

// Report is one progress report of an attempt.
type Report struct {
	Attempt Attempt         `json:"attempt"`
	Seq     int64           `json:"seq"`
	Value   json.RawMessage `json:"value"`
}

// Request is a message of an agent. Type tells which fields count.
type Request struct {
	Type Type   `json:"type"`
	ID   uint64 `json:"id,omitempty"` // repeated in the answer; a hello has none

	// Fields of a hello. Connection counts the dials of this epoch, from 1. With Check the hello
	// only asks what its token may do, and no session begins.
	Node       string `json:"node,omitempty"`
	Epoch      string `json:"epoch,omitempty"`
	Connection int64  `json:"connection,omitempty"`
	Version    string `json:"version,omitempty"`
	Check      bool   `json:"check,omitempty"`

	// Fields of a register. The node is the session's, whatever the profile says. Replaces is the
	// epoch that the welcome named.
	Profile  *freeslot.Node `json:"profile,omitempty"`
	Replaces string         `json:"replaces,omitempty"`

	// Fields of a heartbeat. Now is true if it must not wait to share a call with others.
	Status    freeslot.Status `json:"status,omitempty"`
	Running   []Attempt       `json:"running,omitempty"`
	Resources json.RawMessage `json:"resources,omitempty"`
	Now       bool            `json:"now,omitempty"`

	// Fields of a complete. Next is "", "retry" or "hand_back".
	Attempt      *Attempt           `json:"attempt,omitempty"`
	State        freeslot.State     `json:"state,omitempty"`
	Result       json.RawMessage    `json:"result,omitempty"`
	Error        *freeslot.JobError `json:"error,omitempty"`
	Next         string             `json:"next,omitempty"`
	RetryDelayMS int64              `json:"retry_delay_ms,omitempty"`

	Reports []Report `json:"reports,omitempty"` // of a progress
	JobID   string   `json:"job_id,omitempty"`  // of a spec
}

// Values of Request.Next.
const (
	NextRetry    = "retry"
	NextHandBack = "hand_back"
)

// Values of Answer.Outcomes.
const (
	OutcomeTaken  = "taken"
	OutcomeCancel = "cancel"
	OutcomeStale  = "stale"
)

// Answer is a message of a gateway. Type tells which fields count.
type Answer struct {
	Type Type   `json:"type"`
	ID   uint64 `json:"id,omitempty"` // of the request; 0 if it answers none

	*Welcome // in a welcome

	Lost []string `json:"lost,omitempty"` // jobs, of a registered and a deregistered
	// Outcomes of a progressed: "taken", "cancel", "stale", in the order of the reports.
	Outcomes []string `json:"outcomes,omitempty"`

	// Fields of a beat, as in cell.HeartbeatReply.
	Start  []Attempt `json:"start,omitempty"`
	Stop   []Attempt `json:"stop,omitempty"`
	Cancel []Attempt `json:"cancel,omitempty"`

	// Fields of a completed. Outcome is "completed", "completed_before" or "stale".
	Outcome string     `json:"outcome,omitempty"`
	Begun   []Delivery `json:"begun,omitempty"`

	Jobs     []Delivery `json:"jobs,omitempty"`     // of a jobs
	Attempts []Attempt  `json:"attempts,omitempty"` // of a cancel

	// Fields of a spec. With Large it has no job: POST to SpecPath.
	Tenant string        `json:"tenant,omitempty"`
	Job    *freeslot.Job `json:"job,omitempty"`
	Large  bool          `json:"large,omitempty"`

	Reason string `json:"reason,omitempty"` // of a goaway

	// Fields of an error. Without ID it ends the session.
	Code         freeslot.Code `json:"code,omitempty"`
	Message      string        `json:"message,omitempty"`
	Field        string        `json:"field,omitempty"`
	RetryAfterMS int64         `json:"retry_after_ms,omitempty"`
}

// Welcome tells about the gateway, the node's record, and what the token allows.
type Welcome struct {
	Protocol         string `json:"protocol"`
	Session          string `json:"session"`
	Replica          string `json:"replica"`
	Version          string `json:"version"`
	HeartbeatLimitMS int64  `json:"heartbeat_limit_ms"`
	MaxFrameBytes    int    `json:"max_frame_bytes"`
	InlineBytes      int    `json:"inline_bytes"`
	MaxRequests      int    `json:"max_requests"`
	MaxSlots         int    `json:"max_slots"`
	MaxAttempts      int    `json:"max_attempts"`
	// Replaces is the epoch in the node's record; "" if there is none, or if it is in use.
	Replaces string `json:"replaces,omitempty"`
	// InUse is true while the node lives under another token.
	InUse  bool   `json:"in_use,omitempty"`
	Allows Allows `json:"allows"`
}

// Allows is what a token permits. An absent limit allows all.
type Allows struct {
	Token        string              `json:"token"`
	Nodes        []string            `json:"nodes"`             // ids, or patterns with *
	Expires      string              `json:"expires,omitempty"` // RFC 3339
	Services     []string            `json:"services,omitempty"`
	Pools        []string            `json:"pools,omitempty"`
	Labels       map[string][]string `json:"labels,omitempty"`
	Capabilities []string            `json:"capabilities,omitempty"`
	Slots        int                 `json:"slots,omitempty"`
}
