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
)

// maxTimeMS is in the year 5138, as in package freeslot.
const maxTimeMS = 99_999_999_999_999

// maxError is how much of an error a state keeps, in bytes.
const maxError = 512

// state is how a schedule stands. Times are Redis' clock, in milliseconds. Of a schedule no two
// states are the same text: whatever changes it counts Steps up, and another schedule of
// the name has another UID.
type state struct {
	// UID names this schedule among all that had or will have its name.
	UID   string `json:"uid"`
	Steps uint64 `json:"steps"`
	// Version counts what clients changed.
	Version   uint64 `json:"version"`
	CreatedMS int64  `json:"created_at_ms"`
	UpdatedMS int64  `json:"updated_at_ms"`
	Paused    bool   `json:"paused,omitempty"`
	// NextMS is the next run; 0 is none. Invariant: it is later than LastMS.
	NextMS int64 `json:"next_run_ms,omitempty"`
	// Claim is the run that is being made.
	Claim *claim `json:"claim,omitempty"`
	// LastMS is the run that was made last, and LastJob its job.
	LastMS  int64  `json:"last_run_ms,omitempty"`
	LastJob string `json:"last_job_id,omitempty"`
	// LastError is why a run could not be made; the next that is made clears it.
	LastError   string `json:"last_error,omitempty"`
	LastErrorMS int64  `json:"last_error_at_ms,omitempty"`
	// Made, Failed and Missed count runs: jobs that were created, those that could not be, and
	// those that OnMissed left out.
	Made   uint64 `json:"runs,omitempty"`
	Failed uint64 `json:"failed,omitempty"`
	Missed uint64 `json:"missed,omitempty"`
}

// claim is a run that is being made.
type claim struct {
	RunMS int64 `json:"run_ms"`
	// SinceMS is when it was begun.
	SinceMS int64 `json:"since_ms"`
	// JobID is empty until it is known which cell takes the job; from then on, which is
	// PlacedMS, it may exist.
	JobID    string `json:"job_id,omitempty"`
	PlacedMS int64  `json:"placed_ms,omitempty"`
}

func (s *state) encode() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("schedule: encode a state: %v", err)) // it has nothing that can fail
	}
	return string(text)
}

// decodeState reads what encode wrote, or an operator.
func decodeState(text string) (*state, error) {
	s := new(state)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	for _, t := range []int64{s.CreatedMS, s.UpdatedMS, s.NextMS, s.LastMS, s.LastErrorMS} {
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
		if c.RunMS <= 0 || c.RunMS > maxTimeMS || c.SinceMS < 0 || c.SinceMS > maxTimeMS || c.PlacedMS < 0 || c.PlacedMS > maxTimeMS {
			return nil, errors.New("state: a time of the claim is out of range")
		}
		if _, ok := cell.JobCell(c.JobID); c.JobID != "" && !ok {
			return nil, errors.New("state: the claim's job_id is none")
		}
	}
	return s, nil
}

// step is a copy that is to become the next state.
func (s *state) step() *state {
	next := *s
	next.Steps++
	if s.Claim != nil {
		c := *s.Claim
		next.Claim = &c
	}
	return &next
}

// dueMS is when somebody must look at the schedule; 0 is never.
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

// fail notes why a run cannot be made.
func (s *state) fail(err error, nowMS int64) {
	text := err.Error()
	s.LastError, s.LastErrorMS = strings.ToValidUTF8(text[:min(len(text), maxError)], ""), nowMS
}

// over ends the claim; what follows is the next run after it, of which an update may have
// set a later one.
func (s *state) over(e *Expression) {
	if s.NextMS <= s.Claim.RunMS && s.NextMS != 0 {
		s.NextMS = e.NextMS(s.Claim.RunMS)
	}
	s.LastMS, s.Claim = max(s.LastMS, s.Claim.RunMS), nil
}

// once marks the jobs of a run, see cell.Submission.
func (s *state) once() string {
	return "cron " + s.UID + " " + strconv.FormatInt(s.Claim.RunMS, 10)
}

// jobID is that of a run's job in a cell: of one run always the same.
func jobID(cellIndex int, scheduleID, uid string, runMS int64) string {
	sum := sha256.Sum256([]byte(scheduleID + " " + uid + " " + strconv.FormatInt(runMS, 10)))
	var id ulid.ULID
	if err := id.SetTime(uint64(runMS)); err != nil { // of times that are in range it is none
		panic(fmt.Sprintf("schedule: time of a run: %v", err))
	}
	copy(id[6:], sum[:10])
	return strconv.Itoa(cellIndex) + "-" + id.String()
}

// Schedule is a schedule and how it stands. Times are Redis' clock, in milliseconds since 1970.
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
	// NextRunsMS is documented for its reader in the tag.
	NextRunsMS []int64 `json:"next_runs_ms,omitempty" doc:"The coming runs, where they were asked for; of a paused schedule those that there would be."`
}

func scheduleOf(id string, d *Definition, st *state) Schedule {
	tenant, name, _ := splitID(id)
	out := Schedule{
		Name: name, Tenant: tenant, Cron: d.Cron, TimeZone: cmp.Or(d.TimeZone, "UTC"), Job: d.Job, OnMissed: d.policy(), GraceMS: d.graceMS(), Paused: st.Paused,
		Version: st.Version, CreatedAtMS: st.CreatedMS, UpdatedAtMS: st.UpdatedMS, LastRunMS: st.LastMS, LastJobID: st.LastJob,
		LastError: st.LastError, LastErrorAtMS: st.LastErrorMS, Runs: st.Made, Failed: st.Failed, Missed: st.Missed,
	}
	if !st.Paused {
		out.NextRunMS = st.NextMS
	}
	return out
}

// newState is that of a schedule which is made now.
func newState(e *Expression, nowMS int64, paused bool) *state {
	return &state{
		UID: newUID(), Steps: 1, Version: 1,
		CreatedMS: nowMS, UpdatedMS: nowMS, Paused: paused, NextMS: e.NextMS(nowMS),
	}
}

func newUID() string { return ulid.Make().String() }

// isTemporary reports whether a run that was refused so may be made a moment later.
func isTemporary(err error) bool {
	code := freeslot.CodeOf(err)
	return code.Temporary() || code == freeslot.CodeNoMatchingNode || code == freeslot.CodeInternal
}
