package source

import (
	"encoding/json"
	"fmt"

	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/namelist"
)

// maxRuns is how many runs an assignment remembers.
const maxRuns = 20

// Result says how a run ended.
type Result string

// The results.
const (
	// Served: the list serves what the source has.
	Served Result = "served"
	// Unchanged: the source has what the list serves.
	Unchanged Result = "unchanged"
	// Held: the version is there, and must be accepted before it can serve.
	Held Result = "held"
	// Failed: there is no new version.
	Failed Result = "failed"
	// Lost: the replica of the run died, or lost Redis.
	Lost Result = "lost"
)

// Run is one run of a source for a list.
type Run struct {
	// The tags document ID and the rest for readers of the API.
	ID      string `json:"id"`
	Replica string `json:"replica"`
	AtMS    int64  `json:"at_ms" doc:"When it began, by Redis' clock, in milliseconds since 1970."`
	TookMS  int64  `json:"took_ms,omitempty"`
	Result  Result `json:"result,omitempty" enum:"served,unchanged,held,failed,lost" doc:"Absent while it runs. served: the list serves what the source has. unchanged: it did before. held: a version must be accepted first. failed: there is no new version. lost: its replica died."`
	Why     string `json:"why,omitempty" doc:"Of a run that was held or failed."`
	Rows    int64  `json:"rows,omitempty" doc:"Lines that were read."`
	Bytes   int64  `json:"bytes,omitempty"`
	Version int64  `json:"version,omitempty" doc:"The version that it made."`
	// LeaseMS is when the run counts as lost, by Redis' clock.
	LeaseMS int64 `json:"-"`

	serving *namelist.Version // of the list when it began
	// approval says that it was held because the switch waits for approval, by request.
	approval, request string
	byHand            bool // somebody asked for it
}

// Assignment says where a list's ids come from.
type Assignment struct {
	// The tags document Source and the rest for readers of the API.
	Source   string `json:"source" doc:"A name below lists.sources of the replicas' configuration."`
	Cron     string `json:"cron,omitempty" doc:"When it runs, as in schedules. Absent: only when asked."`
	TimeZone string `json:"time_zone,omitempty" doc:"Of cron; absent means UTC."`
	Author   string `json:"author,omitempty"`
	Note     string `json:"note,omitempty"`
	SetMS    int64  `json:"set_ms" doc:"When that was set."`
	AskedBy  string `json:"asked_by,omitempty" doc:"Who last asked for a run by hand."`
	NextMS   int64  `json:"next_ms,omitempty" doc:"When it runs next; absent where it only runs when asked."`
	Running  *Run   `json:"running,omitempty"`
	Runs     []Run  `json:"runs" doc:"The last runs, the newest first, at most 20."`

	birth string // of the list
	mark  mark
	held  mark   // of the last run, if that was held
	asked bool   // the next run is by hand
	raw   string // as Redis has it; "" if there is none
}

// mark is what a run found.
type mark struct {
	ETag string `json:"etag,omitempty"`
	// From tells addresses apart: an ETag says nothing about what another address has.
	From string `json:"from,omitempty"`
	Sum  string `json:"sum,omitempty"` // SHA-256 of all lines
	// Version is the version of the list that was made of that.
	Version int64 `json:"version,omitempty"`
	// Serving is the version that served when the run began.
	Serving int64 `json:"serving,omitempty"`
	// Approval says why the switch waits for approval; "" if something else holds the version.
	Approval string `json:"approval,omitempty"`
	Request  string `json:"request,omitempty"` // for the approval
}

// stored is the form of an Assignment in Redis.
type stored struct {
	Assignment

	Birth string `json:"birth"`
	Mark  mark   `json:"mark"`
	Held  mark   `json:"held,omitzero"`
	Lease int64  `json:"lease,omitempty"`
	Asked bool   `json:"asked,omitempty"`
}

func (a *Assignment) encode() (string, error) {
	s := stored{Assignment: *a, Birth: a.birth, Mark: a.mark, Held: a.held, Asked: a.asked}
	if a.Running != nil {
		s.Lease = a.Running.LeaseMS
	}
	text, err := json.Marshal(&s)
	return string(text), err
}

func decode(text string) (Assignment, error) {
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Assignment{raw: text}, fmt.Errorf("the source of a list is unreadable: %w", err)
	}
	a := s.Assignment
	a.birth, a.mark, a.held, a.asked, a.raw = s.Birth, s.Mark, s.Held, s.Asked, text
	if a.Running != nil {
		a.Running.LeaseMS = s.Lease
	}
	return a, nil
}

// next returns the first run after a time; 0 for none.
func (a *Assignment) next(afterMS int64) int64 {
	if a.Cron == "" {
		return 0
	}
	e, err := cron.Parse(a.Cron, a.TimeZone)
	if err != nil {
		return 0 // another release wrote it
	}
	return e.NextMS(afterMS)
}

// dueMS returns when a replica should take the list: when its next run begins, or when the lease of
// the run that goes on ends. 0 means never.
func (a *Assignment) dueMS() int64 {
	if a.Running != nil {
		return a.Running.LeaseMS
	}
	return a.NextMS
}

// end moves the run to the history.
func (a *Assignment) end(run Run) {
	a.Running = nil
	a.Runs = append([]Run{run}, a.Runs[:min(len(a.Runs), maxRuns-1)]...)
}
