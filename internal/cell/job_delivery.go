package cell

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// Reply is what an entry of a replica's reply stream says about one job.
type Reply struct {
	// ID is the entry's position in the stream. Several jobs can have the same.
	ID     string
	Status freeslot.JobStatus
	// Used is the number of slots in use on Status.Node after the job ended.
	Used int
	// Partial is true if the result was too large for the stream: Status has everything except
	// Result, which Job reads.
	Partial bool
	// Assigned is true if the job got a slot after it had waited: Status has Node, Attempt, State
	// and AssignedAtMS.
	Assigned bool
	// Requeued is true if an attempt of the job was lost or failed, and the job waits again. Only
	// Status.ID and Class are set.
	Requeued bool
	Class    string
	// Progress is what a handler of the job reported. Apart from it only Status.ID is set.
	Progress *freeslot.Progress
	// Detached is true if another replica attached to the job, and gets the result instead of this
	// one. Only Status.ID is set.
	Detached bool
}

// fields holds the fields of an entry, or of the part of it for one job.
type fields []rueidis.XRangeFieldValue

// get returns the value of the first field with that name; "" if there is none.
func (f fields) get(name string) string {
	for i := range f {
		if f[i].Field == name {
			return f[i].Value
		}
	}
	return ""
}

// parts splits an entry into its jobs: each part except the first begins with a field j. There is
// at least one part.
func parts(entry fields) iter.Seq[fields] {
	return func(yield func(fields) bool) {
		begin := 0
		for i := 1; i < len(entry); i++ {
			if entry[i].Field == "j" {
				if !yield(entry[begin:i]) {
					return
				}
				begin = i
			}
		}
		yield(entry[begin:])
	}
}

// decodeDispatch reads a job to begin, in the fields j ("job attempt tenant") and s (the spec,
// empty if it is large), or a job to cancel, in the field c ("job attempt").
func decodeDispatch(id string, f fields) (d Dispatch, err error) {
	if head := f.get("c"); head != "" {
		d.Cancel = true
		if err = readParts(head, &d.Attempt.Job, &d.Attempt.N); err == nil {
			err = ValidateJobID("job_id", d.Attempt.Job)
		}
	} else {
		d, err = decodeDelivery(f.get("j"), f.get("s"))
	}
	if err != nil {
		return Dispatch{}, err
	}
	d.ID = id
	return d, nil
}

// decodeDelivery reads "job attempt tenant" and the job's spec, which is empty if it is large.
func decodeDelivery(head, spec string) (d Dispatch, err error) {
	if err = readParts(head, &d.Attempt.Job, &d.Attempt.N, &d.Tenant); err != nil {
		return d, err
	}
	// A job id that this release does not know would make every heartbeat fail that names it.
	if err = ValidateJobID("job_id", d.Attempt.Job); err != nil || spec == "" {
		return d, err
	}
	d.Job, err = decodeSpec([]byte(spec))
	return d, err
}

// decodeReply reads what an entry of a reply stream says about a job:
//
//	it ended                     j ("job attempt node state finished-at used partial"), r (result), e (failure) and
//	                             f (how many attempts failed, absent for none)
//	another replica attached     d (the job)
//	it got a slot after waiting  a ("job attempt node assigned-at used")
//	it waits again               w ("job class")
//	progress                     p ("job attempt number at") and v (the value)
func decodeReply(id string, f fields) (r Reply, err error) {
	r.ID = id
	s := &r.Status
	if head := f.get("p"); head != "" {
		job, rest, _ := strings.Cut(head, " ")
		s.ID = job
		if err = ValidateJobID("job_id", job); err == nil {
			r.Progress, err = decodeProgress(rest + " " + f.get("v"))
		}
		return r, err
	}
	if s.ID = f.get("d"); s.ID != "" {
		r.Detached = true
		return r, nil
	}
	if requeued := f.get("w"); requeued != "" {
		r.Requeued = true
		err = readParts(requeued, &s.ID, &r.Class)
		return r, err
	}
	if assigned := f.get("a"); assigned != "" {
		r.Assigned, s.State = true, freeslot.StateRunning
		err = readParts(assigned, &s.ID, &s.Attempt, &s.Node, &s.AssignedAtMS, &r.Used)
		return r, err
	}
	var state, partial string
	if err = readParts(f.get("j"), &s.ID, &s.Attempt, &s.Node, &state, &s.FinishedAtMS, &r.Used, &partial); err != nil {
		return r, err
	}
	s.State, r.Partial = freeslot.State(state), partial == "1"
	if fails := f.get("f"); fails != "" {
		if s.Failures, err = strconv.Atoi(fails); err != nil {
			return r, fmt.Errorf("failures: %w", err)
		}
	}
	if s.Node == noNode {
		s.Node = ""
	}
	err = setOutcome(s, f.get("r"), f.get("e"))
	return r, err
}

// noNode stands for the node of a job that ended before its first attempt.
const noNode = "-"
