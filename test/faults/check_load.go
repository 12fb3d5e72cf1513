package faults

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
)

// ofAllCells returns a job's id without its cell: a job that moves to another cell keeps the rest.
func ofAllCells(id string) string {
	_, rest, _ := strings.Cut(id, "-")
	return rest
}

// checkTraits checks the rules for certain kinds of jobs: none begins before its time, or on a node
// of another class, and all progress that clients got was reported by the handler.
func (c *checker) checkTraits(n int, j *job) {
	for _, h := range j.handlers {
		// Run times have milliseconds.
		if early := j.first + time.Duration(j.task.DelayMS)*time.Millisecond - time.Millisecond - h.begin.At; j.task.DelayMS > 0 && early > 0 {
			c.bad("early", "attempt %d of job %s (submission %d) began on %s %s before its time", h.begin.Attempt, h.begin.Job, n, h.begin.Node, early)
		}
		if j.task.Class != "" && c.history.Classes[h.begin.Node] != j.task.Class {
			c.bad("class", "job %s (submission %d) of class %q began on %s of class %q", h.begin.Job, n, j.task.Class, h.begin.Node, c.history.Classes[h.begin.Node])
		}
	}
	for _, e := range j.told {
		if e.Result == nil || e.Result.N != n || e.Result.Attempt != e.Attempt || j.handler(func(h *handler) bool {
			return h.is(e) && h.begin.Node == e.Result.Node && h.begin.At <= e.At
		}) == nil {
			c.bad("progress", "%s was told of attempt %d of job %s (submission %d): %v", e.Who, e.Attempt, e.Job, n, e.Result)
		}
	}
	for _, r := range j.records {
		c.checkDrained(r)
	}
}

// checkDrained: the last attempt was not given to a node that was drained then.
func (c *checker) checkDrained(r *Record) {
	for _, d := range c.drained[r.Node] {
		begin := time.UnixMilli(c.history.BeginMS)
		if at := time.UnixMilli(r.AssignedMS); at.After(begin.Add(d.from+time.Millisecond)) && at.Before(begin.Add(d.to-time.Millisecond)) {
			c.bad("drained", "attempt %d of job %s was given to %s %s after the begin, which was drained from %s to %s", r.Attempt, r.Job, r.Node, at.Sub(begin), d.from, d.to)
		}
	}
}

// noteDrain collects the times at which nodes were drained.
func (c *checker) noteDrain(e *Event) {
	if e.Kind == Drained {
		c.drained[e.Node] = append(c.drained[e.Node], span{e.At, forever})
	} else if list := c.drained[e.Node]; len(list) > 0 {
		list[len(list)-1].to = min(list[len(list)-1].to, e.At)
	}
}

// checkLimits: no more jobs of a tenant or a concurrency key ran at a time than its limit allows.
// Only the attempts of successful jobs count: others may have lost their slot long before they end.
func (c *checker) checkLimits() {
	changes := map[string][]change{}
	limits := map[string]int{}
	for _, j := range c.jobs {
		if len(j.records) != 1 || j.records[0].State != freeslot.StateSucceeded || j.doubt {
			continue
		}
		r := j.records[0]
		h := j.handler(func(h *handler) bool { return h.done() && h.begin.Attempt == r.Attempt && h.begin.Node == r.Node })
		if h == nil {
			continue // checkSuccess reports it
		}
		var names []string
		if limit := c.history.Running[j.task.Tenant]; limit > 0 {
			name := "tenant " + j.task.Tenant
			names, limits[name] = append(names, name), limit
		}
		if j.task.Serial != "" {
			name := "key " + j.task.Tenant + "/" + j.task.Serial
			names, limits[name] = append(names, name), c.history.Serial
		}
		for _, name := range names {
			changes[name] = append(changes[name], change{h.begin.At, 1, r.Job}, change{h.end.At, -1, r.Job})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		most(changes[name], func(ch change, running int) {
			if running > limits[name] {
				c.bad("limit", "%d jobs of %s ran at %s, with %s; its limit is %d", running, name, ch.at, ch.text, limits[name])
			}
		})
	}
}

// most goes through changes in the order of time, ends first, and shows the sum after each rise.
func most(changes []change, see func(ch change, sum int)) {
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.slots, b.slots)) })
	sum := 0
	for _, ch := range changes {
		if sum += ch.slots; ch.slots > 0 {
			see(ch, sum)
		}
	}
}

// checkPeriodic: a schedule has made as many jobs as it says. It may not know about one yet.
func (c *checker) checkPeriodic() {
	if made := len(c.periodic); made < c.history.Runs || made > c.history.Runs+1 {
		c.bad("schedule", "the schedule made %d jobs and says %d", made, c.history.Runs)
	}
}

// jobOf returns the job that an event or a record belongs to; nil if no client submitted it. Each
// job of a schedule has a number of its own, below [Periodic].
func (c *checker) jobOf(n int, id string) *job {
	if n != Periodic {
		return c.jobs[n]
	}
	own, known := c.periodic[ofAllCells(id)]
	if !known {
		own = Periodic - 1 - len(c.periodic)
		c.periodic[ofAllCells(id)], c.jobs[own] = own, &job{task: Task{N: Periodic, Slots: 1}}
	}
	return c.jobs[own]
}
