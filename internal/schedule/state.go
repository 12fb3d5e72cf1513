package schedule

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/cron"
)

// maxTimeMS is in the year 5138, as in package freeslot.
const maxTimeMS = 99_999_999_999_999

// maxError is the most bytes of an error that a state keeps.
const maxError = 512

// state is the state of a schedule. Times are by Redis' clock, in milliseconds. No two states of a
// schedule have the same text: each change increments Steps, and another schedule with the name has
// another UID.
type state struct {
	// UID identifies this schedule among all that ever have its name.
	UID   string `json:"uid"`
	Steps uint64 `json:"steps"`
	// Version counts the changes by clients.
	Version   uint64 `json:"version"`
	CreatedMS int64  `json:"created_at_ms"`
	UpdatedMS int64  `json:"updated_at_ms"`
	Paused    bool   `json:"paused,omitempty"`
	// NextMS is the time of the next run; 0 means none. Invariant: it is later than LastMS.
	NextMS int64 `json:"next_run_ms,omitempty"`
	// Claim is the run that is being made; nil if there is none.
	Claim *claim `json:"claim,omitempty"`
	// LastMS is the time of the last run that was made, and LastJob its job.
	LastMS  int64  `json:"last_run_ms,omitempty"`
	LastJob string `json:"last_job_id,omitempty"`
	// LastError says why a run could not be made. The next run that is made clears it.
	LastError   string `json:"last_error,omitempty"`
	LastErrorMS int64  `json:"last_error_at_ms,omitempty"`
	// Made counts the runs whose jobs were created, Failed those whose jobs could not be, and
	// Missed those that OnMissed left out.
	Made   uint64 `json:"runs,omitempty"`
	Failed uint64 `json:"failed,omitempty"`
	Missed uint64 `json:"missed,omitempty"`
	// LastMissedMS is the time at which a replica last left out runs.
	LastMissedMS int64 `json:"last_missed_at_ms,omitempty"`
}

// claim is a run that is being made.
type claim struct {
	RunMS int64 `json:"run_ms"`
	// SinceMS is the time at which the claim was made.
	SinceMS int64 `json:"since_ms"`
	// JobID is empty until a cell for the job is chosen. PlacedMS is the time of that. From then on
	// the job may exist.
	JobID    string `json:"job_id,omitempty"`
	PlacedMS int64  `json:"placed_ms,omitempty"`
}

func (s *state) encode() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("schedule: encode a state: %v", err)) // nothing in it can fail
	}
	return string(text)
}

// decodeState reads what encode or an operator wrote.
func decodeState(text string) (*state, error) {
	s := new(state)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	for _, t := range []int64{s.CreatedMS, s.UpdatedMS, s.NextMS, s.LastMS, s.LastErrorMS, s.LastMissedMS} {
		if t < 0 || t > maxTimeMS {
			return nil, errors.New("state: a time is out of range")
		}
	}
	if _, err := ulid.ParseStrict(s.UID); err != nil {
		return nil, fmt.Errorf("state: uid: %w", err)
	}
	if s.Steps == 0 || s.Version == 0 {
		return nil, errors.New("state: no steps or no version")
	}
	if c := s.Claim; c != nil {
		if c.RunMS <= 0 || c.RunMS > maxTimeMS || c.SinceMS < 0 || c.SinceMS > maxTimeMS || c.PlacedMS < 0 ||
			c.PlacedMS > maxTimeMS {
			return nil, errors.New("state: a time of the claim is out of range")
		}
		if _, ok := cell.JobCell(c.JobID); c.JobID != "" && !ok {
			return nil, errors.New("state: the claim's job_id is none")
		}
	}
	return s, nil
}

// step returns a copy, which is to become the next state.
func (s *state) step() *state {
	next := *s
	next.Steps++
	if s.Claim != nil {
		c := *s.Claim
		next.Claim = &c
	}
	return &next
}

// dueMS returns the time at which a replica must look at the schedule; 0 means never.
func (s *state) dueMS() int64 {
	switch {
	case s.Claim != nil:
		return max(s.Claim.SinceMS, 1)
	case s.Paused:
		return 0
	default:
		return s.NextMS
	}
}

// fail records why a run cannot be made.
func (s *state) fail(err error, nowMS int64) {
	text := err.Error()
	s.LastError, s.LastErrorMS = strings.ToValidUTF8(text[:min(len(text), maxError)], ""), nowMS
}

// over ends the claim. The next run is the one after it, unless an update has set a later one.
func (s *state) over(e *cron.Expression) {
	if s.NextMS <= s.Claim.RunMS && s.NextMS != 0 {
		s.NextMS = e.NextMS(s.Claim.RunMS)
	}
	s.LastMS, s.Claim = max(s.LastMS, s.Claim.RunMS), nil
}

// once returns a marker for the job of the claim's run, see cell.Submission.
func (s *state) once() string {
	return "cron " + s.UID + " " + strconv.FormatInt(s.Claim.RunMS, 10)
}

// jobID returns the id of a run's job in a cell. It is always the same for one run.
func jobID(cellIndex int, scheduleID, uid string, runMS int64) string {
	sum := sha256.Sum256([]byte(scheduleID + " " + uid + " " + strconv.FormatInt(runMS, 10)))
	var id ulid.ULID
	if err := id.SetTime(uint64(runMS)); err != nil { // impossible for a time in range
		panic(fmt.Sprintf("schedule: time of a run: %v", err))
	}
	copy(id[6:], sum[:10])
	return strconv.Itoa(cellIndex) + "-" + id.String()
}

// Schedule is a schedule with its state. Times are by Redis' clock, in milliseconds since 1970.
type Schedule struct {
	Name     string       `json:"name"`
	Tenant   string       `json:"tenant"`
	Cron     string       `json:"cron"`
	TimeZone string       `json:"time_zone"`
	Job      freeslot.Job `json:"job"`
	OnMissed OnMissed     `json:"on_missed" enum:"skip,latest,all"`
	GraceMS  int64        `json:"grace_ms"`
	Paused   bool         `json:"paused"`

	Version       uint64 `json:"version" doc:"Changes with every change by a client."`
	CreatedAtMS   int64  `json:"created_at_ms" doc:"The store's clock, in milliseconds since 1970, as all times here."`
	UpdatedAtMS   int64  `json:"updated_at_ms"`
	NextRunMS     int64  `json:"next_run_ms,omitempty" doc:"Absent while it is paused."`
	LastRunMS     int64  `json:"last_run_ms,omitempty" doc:"The time of the last run that is over, whether a job could be created or not."`
	LastJobID     string `json:"last_job_id,omitempty" doc:"The last job that was created."`
	LastError     string `json:"last_error,omitempty" doc:"Why the last run could not be made, or cannot be yet; absent after one that was."`
	LastErrorAtMS int64  `json:"last_error_at_ms,omitempty"`
	Runs          uint64 `json:"runs" doc:"How many jobs were created."`
	Failed        uint64 `json:"failed" doc:"How many runs could not be made."`
	Missed        uint64 `json:"missed" doc:"How many runs were left out because they were missed."`
	// The tag documents LastMissedAtMS.
	LastMissedAtMS int64 `json:"last_missed_at_ms,omitempty" doc:"When runs that were late by more than grace_ms were last left out: once a replica came to look at the schedule again."`
	// The tag documents NextRunsMS.
	NextRunsMS []int64 `json:"next_runs_ms,omitempty" doc:"The coming runs, where they were asked for; of a paused schedule those that there would be."`
}

func scheduleOf(id string, d *Definition, st *state) Schedule {
	tenant, name, _ := splitID(id)
	out := Schedule{
		Name: name, Tenant: tenant, Cron: d.Cron, TimeZone: cmp.Or(d.TimeZone, "UTC"), Job: d.Job, OnMissed: d.policy(),
		GraceMS: d.graceMS(), Paused: st.Paused,
		Version: st.Version, CreatedAtMS: st.CreatedMS, UpdatedAtMS: st.UpdatedMS, LastRunMS: st.LastMS,
		LastJobID: st.LastJob,
		LastError: st.LastError, LastErrorAtMS: st.LastErrorMS, Runs: st.Made, Failed: st.Failed, Missed: st.Missed,
		LastMissedAtMS: st.LastMissedMS,
	}
	if !st.Paused {
		out.NextRunMS = st.NextMS
	}
	return out
}

// newState returns the state of a schedule that is made now.
func newState(e *cron.Expression, nowMS int64, paused bool) *state {
	return &state{
		UID: newUID(), Steps: 1, Version: 1,
		CreatedMS: nowMS, UpdatedMS: nowMS, Paused: paused, NextMS: e.NextMS(nowMS),
	}
}

func newUID() string { return ulid.Make().String() }

// isTemporary reports whether a run that was refused with err may succeed a moment later.
func isTemporary(err error) bool {
	code := freeslot.CodeOf(err)
	return code.Temporary() || code == freeslot.CodeNoMatchingNode || code == freeslot.CodeInternal
}
