package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/wire"
)

// OnMissed says what happens to runs that did not begin in time, because nothing ran then or
// because several runs of a schedule came due together.
type OnMissed string

// The policies. With each of them the last due run is made, unless its grace is over.
const (
	// Skip leaves out missed runs.
	Skip OnMissed = "skip"
	// Latest makes the last of the missed runs, once. It is the default.
	Latest OnMissed = "latest"
	// All makes the last MaxMissed runs, one after the other.
	All OnMissed = "all"
)

const (
	// MaxMissed is the most runs that All makes up for.
	MaxMissed = 100
	// DefaultGrace is used if Definition.GraceMS is 0.
	DefaultGrace = time.Minute
	// MaxGrace is the largest grace.
	MaxGrace = 7 * 24 * time.Hour
)

// Definition says what a client wants to run, and when.
type Definition struct {
	// Cron and TimeZone are the arguments of Parse.
	Cron     string `json:"cron"`
	TimeZone string `json:"time_zone,omitempty"`
	// Job is the template of each run's job.
	Job freeslot.Job `json:"job"`
	// OnMissed says what happens to missed runs; "" means Latest.
	OnMissed OnMissed `json:"on_missed,omitempty"`
	// GraceMS is the time in milliseconds after which a run that has not begun counts as missed. It
	// is also how long a run that cannot be made is tried again. 0 means DefaultGrace.
	GraceMS int64 `json:"grace_ms,omitempty"`
}

// Change is a schedule as a client sends it.
type Change struct {
	Definition
	// Pause pauses or resumes the schedule; nil leaves that as it is.
	Pause *bool
	// Version, if not nil, must be the version of the schedule that is replaced; 0 means that there
	// must be none.
	Version *uint64
}

// DecodeChange reads JSON and validates it, except for the payload's size. Unknown fields are
// refused. Errors: *freeslot.Error (invalid_argument), which names every bad field.
func DecodeChange(data []byte) (*Change, error) {
	c, err := decodeChange(data)
	if err != nil {
		return nil, allProblems(data, err)
	}
	return c, nil
}

// decodeChange is DecodeChange, but names only the first bad field.
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
	if _, err := cron.Parse(s.Cron, s.TimeZone); err != nil {
		return err
	}
	switch s.OnMissed {
	case "", Skip, Latest, All:
	default:
		return freeslot.Invalid("on_missed", "is %q, expected skip, latest or all", s.OnMissed)
	}
	if s.GraceMS < 0 || s.GraceMS > MaxGrace.Milliseconds() {
		return freeslot.Invalid(
			"grace_ms", "is %d, expected 1 to %d (0 or absent means %d)", s.GraceMS, MaxGrace.Milliseconds(),
			DefaultGrace.Milliseconds(),
		)
	}
	for field, set := range map[string]bool{
		"job.run_at_ms": s.Job.RunAtMS != 0, "job.idempotency_key": s.Job.IdempotencyKey != "",
		"job.traceparent": s.Job.TraceParent != "",
	} {
		if set {
			return freeslot.Invalid(field, "is set, which is for one job: leave it out of a schedule")
		}
	}
	return s.Job.Validate("job")
}

// graceMS returns GraceMS with its default applied.
func (s *Definition) graceMS() int64 {
	if s.GraceMS == 0 {
		return DefaultGrace.Milliseconds()
	}
	return s.GraceMS
}

// policy returns OnMissed with its default applied.
func (s *Definition) policy() OnMissed {
	if s.OnMissed == "" {
		return Latest
	}
	return s.OnMissed
}

// encode returns the schedule in its stored form.
func (s *Definition) encode() (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", freeslot.Invalid("job", "cannot be encoded: %v", err)
	}
	return string(text), nil
}

// decodeDefinition reads what encode wrote, in this release or another one, or what an operator
// wrote. It does not validate the job: releases differ in what they refuse, and the schedule's
// status should report that.
func decodeDefinition(text string) (*Definition, error) {
	s := new(Definition)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	if _, err := cron.Parse(s.Cron, s.TimeZone); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	return s, nil
}
