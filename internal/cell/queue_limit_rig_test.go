package cell

import (
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

func limitedBy(l ...Limit) func(*Submission) { return func(s *Submission) { s.Limits = l } }

// soundLimits: what runs or waits counts, and nothing else, never more than the limit; who is held
// back waits. It returns which limit holds which job back.
func (r *rig) soundLimits(names, held, jobs []string) map[string]string {
	r.t.Helper()
	counts := make(map[string]map[string]bool) // limit -> jobs
	for _, name := range names {
		counts[name] = make(map[string]bool)
		for _, job := range r.strings("SMEMBERS", r.l.Counted(name)) {
			counts[name][job] = true
		}
		if limit, _ := strconv.Atoi(r.field(r.l.Limits(), name)); limit < len(counts[name]) && !strings.HasPrefix(name, "w:") { // where those that come back count too
			r.t.Errorf("%d jobs count at %s, whose limit is %d", len(counts[name]), name, limit)
		}
	}
	of := make(map[string]string)
	for _, job := range jobs {
		record := r.hash(r.l.Job(job))
		of[job] = record["gates"]
		_, list, _ := strings.Cut(record["gates"], " ")
		for i, name := range strings.Fields(list) {
			if i%2 == 1 {
				continue // the limit
			}
			state := freeslot.State(record["state"])
			should := state == freeslot.StateRunning || state == freeslot.StateCancelling
			if strings.HasPrefix(name, "w:") {
				should = !should && !state.Terminal()
			}
			if counts[name][job] != should {
				r.t.Errorf("job %s is %s and counts at %s: %v", job, state, name, counts[name][job])
			}
			delete(counts[name], job)
		}
	}
	for name, rest := range counts {
		if len(rest) > 0 {
			r.t.Errorf("jobs %v count at %s and do not belong there", rest, name)
		}
	}
	return r.soundParked(held, of)
}

func (r *rig) soundParked(names []string, limitsOf map[string]string) map[string]string {
	r.t.Helper()
	listed, limited := r.scores(r.l.FullLimits()), make(map[string]string)
	for _, name := range names {
		if name == "" {
			continue // the index
		}
		if _, ok := listed[name]; !ok {
			r.t.Errorf("limit %s holds jobs back and is not listed", name)
		}
		delete(listed, name)
		for member := range r.scores(r.l.LimitedBy(name)) {
			class, job, _ := strings.Cut(member, " ")
			if other, twice := limited[job]; twice {
				r.t.Errorf("job %s is held back by %s and %s", job, other, name)
			}
			limited[job] = name
			record := r.jobRecord(job)
			if record.class != class || !strings.Contains(limitsOf[job]+" ", " "+name+" ") {
				r.t.Errorf("job %s of %q and limits %q is held back by %s as of class %s", job, record, limitsOf[job], name, class)
			}
		}
	}
	if len(listed) > 0 {
		r.t.Errorf("limits %v hold nobody back and are listed", listed)
	}
	return limited
}

// check has the limits checked, and returns how many classes jobs came back to.
func (r *rig) check() int {
	r.t.Helper()
	classes, err := r.CheckLimits(r.ctx(), 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(classes)
}
