package cell

import (
	"slices"
	"strconv"

	"github.com/freeslot/freeslot"
)

// tieRoom is how many terminal jobs may share a microsecond without being lost between pages. A
// batch gives each of its own jobs a microsecond of its own.
const tieRoom = 64

// JobFilter narrows a listing. Zero fields match everything.
type JobFilter struct {
	Tenant string
	State  freeslot.State
	// Class is a freeslot.ClassID.
	Class string
	// Node is the node that a job runs on or ran on last, Schedule the schedule that made it.
	Service, Node, Schedule string
	// Code is the code of a job's error. Without State it leaves out jobs that have not ended.
	Code string
	// FromMS and ToMS leave out jobs that ended before FromMS, or at ToMS or later, and all that have
	// not ended. They are in milliseconds of Redis' clock.
	FromMS, ToMS int64
}

// endedAlone reports whether no job that has not ended fits.
func (f *JobFilter) endedAlone() bool {
	return f.State.Terminal() || f.FromMS > 0 || f.ToMS > 0 || f.State == "" && f.Code != ""
}

// narrow reports whether many of the jobs that are looked at may not fit.
func (f *JobFilter) narrow() bool {
	return f.Tenant != "" || f.State != "" || f.Class != "" || f.Service != "" || f.Node != "" || f.Schedule != "" ||
		f.Code != ""
}

func (f *JobFilter) fits(s *freeslot.JobStatus) bool {
	return (f.Tenant == "" || s.Tenant == f.Tenant) && (f.State == "" || s.State == f.State) &&
		(f.Class == "" || s.Class == f.Class) && (f.Service == "" || s.Service == f.Service) &&
		(f.Node == "" || s.Node == f.Node) && (f.Schedule == "" || s.Schedule == f.Schedule) &&
		(f.Code == "" || s.Error != nil && s.Error.Code == f.Code)
}

// JobPage is one page of a listing.
type JobPage struct {
	Jobs []freeslot.JobStatus
	// Cursor continues the listing; empty at its end. A short or even empty page can have a Cursor,
	// because filters are applied to what was read.
	Cursor string
	// LookedAt counts the jobs that were looked at for the page, at most MaxLook.
	LookedAt int
	// SinceMS is the time from which on the page, with those before it, has every job that ended
	// and fits: the records of earlier ones were not looked at yet, or are not kept. It is 0 if no
	// ended job was looked for yet. Ends by processes of an older release are not indexed, so filters
	// can miss them.
	SinceMS int64
	// Unreachable lists the cells that did not answer, whose jobs are not in the page; nil if all
	// answered.
	Unreachable []int
}

// listed is a job at its place in the listing. A position is valid in every cell, because all cells
// share one order of nodes and times.
type listed struct {
	cell int
	node string  // the node that owns the job, or the place of a job without one
	us   float64 // the time at which a terminal job ended; in a sorted set, the score
	due  int64   // the time at which a job at placeDue continues, in ms
	job  string
	// member is the job's member of the sorted set at its place; empty at other places.
	member string
	line   bool // it was found in the queue of its class
}

// position returns the place after the job.
func (j *listed) position() *position {
	switch us := strconv.FormatFloat(j.us, 'f', 0, 64); {
	case j.line:
		return &position{line: true, place: us, job: j.job}
	case j.node == "":
		return &position{finished: true, place: us, job: j.job}
	case j.member != "":
		return &position{scored: true, score: j.us, place: j.node, job: j.member}
	default:
		return &position{place: j.node, job: j.job}
	}
}

// listing is the reading of one page. It does not ask a cell again that failed.
type listing struct {
	set    *Set
	failed map[int]error
}

// merge asks every cell and keeps the first limit jobs in order.
func (l *listing) merge(limit int, order func(a, b listed) int, read func(c *Cell) ([]listed, error)) []listed {
	parts := make([][]listed, len(l.set.cells))
	l.ask(func(i int, c *Cell) (err error) {
		parts[i], err = read(c)
		return err
	})
	var all []listed
	for i, part := range parts {
		for j := range part {
			part[j].cell = i
		}
		all = append(all, part...)
	}
	slices.SortFunc(all, order)
	return all[:min(len(all), limit)]
}

// ask runs f at the same time for every cell that has not failed. i is the cell's index in the set.
func (l *listing) ask(f func(i int, c *Cell) error) {
	place := make(map[*Cell]int, len(l.set.cells))
	for i, c := range l.set.cells {
		place[c] = i
	}
	for i, err := range l.set.each(func(c *Cell) error {
		if l.failed[place[c]] != nil {
			return nil
		}
		return f(place[c], c)
	}) {
		if err != nil {
			l.failed[i] = err
		}
	}
}

// indexes returns the indexes of the ended jobs among which those that fit are.
func (f *JobFilter) indexes(l Layout) []string {
	switch {
	case f.State == freeslot.StateSucceeded:
		return []string{l.Finished()}
	case f.State.Terminal():
		return []string{l.Ended(string(f.State))}
	case f.Code != "": // a cancelled job has none
		return []string{
			l.Ended(string(freeslot.StateFailed)), l.Ended(string(freeslot.StateExpired)), l.Ended(string(freeslot.StateDead)),
		}
	default:
		return []string{l.Finished(), l.Ended(string(freeslot.StateDead))}
	}
}

// unsuccessful reports whether the filter's jobs are all in the indexes of ends that are no
// success.
func (f *JobFilter) unsuccessful() bool {
	return f.State.Terminal() && f.State != freeslot.StateSucceeded || f.State == "" && f.Code != ""
}
