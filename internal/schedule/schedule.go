package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// OnMissed is what becomes of runs that did not begin in time: because nothing ran then, or
// several of one schedule came due together.
type OnMissed string

// The policies. The last run that is due is made by all of them unless its grace is over.
const (
	// Skip: runs that were missed are not made up for.
	Skip OnMissed = "skip"
	// Latest: of all that were missed the last is made, once. The default.
	Latest OnMissed = "latest"
	// All: the last MaxMissed are made, one after the other.
	All OnMissed = "all"
)

const (
	// MaxMissed is how many runs All makes up for.
	MaxMissed = 100
	// DefaultGrace is Definition.GraceMS where it is 0.
	DefaultGrace = time.Minute
	// MaxGrace is its bound.
	MaxGrace = 7 * 24 * time.Hour
)

// Definition is what a client wants to be run, and when.
type Definition struct {
	// Cron and TimeZone are for Parse.
	Cron     string `json:"cron"`
	TimeZone string `json:"time_zone,omitempty"`
	// Job is the template of each run's job.
	Job freeslot.Job `json:"job"`
	// OnMissed is what becomes of missed runs; "" means Latest.
	OnMissed OnMissed `json:"on_missed,omitempty"`
	// GraceMS is after how many milliseconds a run that has not begun counts as missed, and
	// for how long one is tried again that cannot be made. 0 means DefaultGrace.
	GraceMS int64 `json:"grace_ms,omitempty"`
}

// Change is a schedule as a client sends it.
type Change struct {
	Definition
	// Pause is whether it is to be paused; nil leaves that as it is.
	Pause *bool
	// Version, if not nil, is that of the schedule which is replaced; 0 says that there is none.
	Version *uint64
}

// DecodeChange reads JSON and validates it, but for the payload's size. Unknown fields are
// refused. Errors: *freeslot.Error (invalid_argument), which names every bad field.
func DecodeChange(data []byte) (*Change, error) {
	c, err := decodeChange(data)
	if err != nil {
		return nil, allProblems(data, err)
	}
	return c, nil
}

// decodeChange is DecodeChange, but names the first bad field alone.
func decodeChange(data []byte) (*Change, error) {
	var in struct {
		Cron     string          `json:"cron"`
		TimeZone string          `json:"time_zone"`
		Job      json.RawMessage `json:"job"`
		OnMissed OnMissed        `json:"on_missed"`
		GraceMS  int64           `json:"grace_ms"`
		Paused   *bool           `json:"paused"`
		Version  *uint64         `json:"version"`
	}
	if err := freeslot.DecodeStrict("schedule", data, &in); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(in.Job)) == 0 {
		return nil, freeslot.Invalid("job", "is missing, expected what is to be run such as %s", `{"service": "report"}`)
	}
	job, refused := wire.DecodeJob(in.Job)
	if refused != nil {
		return nil, refused
	}
	c := &Change{Version: in.Version, Pause: in.Paused, Definition: Definition{
		Cron: in.Cron, TimeZone: in.TimeZone, Job: job, OnMissed: in.OnMissed, GraceMS: in.GraceMS,
	}}
	return c, c.Validate()
}

// Validate checks everything but the payload's size. Errors: *freeslot.Error
// (invalid_argument).
func (s *Definition) Validate() error {
	if _, err := Parse(s.Cron, s.TimeZone); err != nil {
		return err
	}
	switch s.OnMissed {
	case "", Skip, Latest, All:
	default:
		return freeslot.Invalid("on_missed", "is %q, expected skip, latest or all", s.OnMissed)
	}
	if s.GraceMS < 0 || s.GraceMS > MaxGrace.Milliseconds() {
		return freeslot.Invalid("grace_ms", "is %d, expected 1 to %d (0 or absent means %d)", s.GraceMS, MaxGrace.Milliseconds(), DefaultGrace.Milliseconds())
	}
	for field, set := range map[string]bool{
		"job.run_at_ms": s.Job.RunAtMS != 0, "job.idempotency_key": s.Job.IdempotencyKey != "", "job.traceparent": s.Job.TraceParent != "",
	} {
		if set {
			return freeslot.Invalid(field, "is set, which is for one job: leave it out of a schedule")
		}
	}
	return s.Job.Validate("job")
}

// graceMS is GraceMS with its default applied.
func (s *Definition) graceMS() int64 {
	if s.GraceMS == 0 {
		return DefaultGrace.Milliseconds()
	}
	return s.GraceMS
}

// policy is OnMissed with its default applied.
func (s *Definition) policy() OnMissed {
	if s.OnMissed == "" {
		return Latest
	}
	return s.OnMissed
}

// encode is the form in which a schedule is stored.
func (s *Definition) encode() (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", freeslot.Invalid("job", "cannot be encoded: %v", err)
	}
	return string(text), nil
}

// decodeDefinition reads what encode wrote, here or in another release, or an operator. The
// job is not validated: what releases refuse differs, and the status is to tell of it.
func decodeDefinition(text string) (*Definition, error) {
	s := new(Definition)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	if _, err := Parse(s.Cron, s.TimeZone); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	return s, nil
}
