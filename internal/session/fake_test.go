package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/identity"
)

// fakeDispatcher decides about a job by the name of its service: "echo" or "tts" succeeds with its
// payload. "fail" fails. "flaky" is tried until it is dead. "hold" runs until the test cancels or
// finishes it; "talk" does the same, after a progress. "nowhere" or "unheard-of" fits no node,
// "busy" no free one. "broken" meets a defect. Everything happens within Submit, except for jobs
// that wait: with slots set, until there is room, and with a timeout not even that long.
type fakeDispatcher struct {
	mu   sync.Mutex
	next int
	jobs map[string]*fakeJob
	// slots of the one node; 0 is no limit. used are in use. waiting are the ids of the jobs that
	// do not fit, in their order.
	slots, used int
	waiting     []string
	// submitting, when set, is called at the start of each Submit.
	submitting func(reqs []dispatch.Request)
	// hanging, when set, is called by Attach before it does anything. Attach then fails if its
	// context has ended.
	hanging func(ctx context.Context)
	// alias, when set, is another id of the job named by it.
	alias map[string]string
	// attaching, when set, is called within Attach, after it took effect.
	attaching func(jobID string)
	// answering, when set, is called at the end of each Cancel and Attach.
	answering func()
	// forgotten gets every sink that was forgotten, when it is not nil.
	forgotten chan dispatch.Sink
}

type fakeJob struct {
	status freeslot.JobStatus
	// payload is the result to come, attempts how many attempts there may be.
	payload  json.RawMessage
	attempts int
	sink     dispatch.Sink
}

func newFakeDispatcher() *fakeDispatcher {
	return &fakeDispatcher{jobs: map[string]*fakeJob{}, forgotten: make(chan dispatch.Sink, 1000)}
}

func (d *fakeDispatcher) Submit(_ context.Context, reqs []dispatch.Request, sink dispatch.Sink, accepted func(int, dispatch.Accepted, error)) {
	if d.submitting != nil {
		d.submitting(reqs)
	}
	for i, r := range reqs {
		switch r.Job.Service {
		case "nowhere", "unheard-of":
			accepted(i, dispatch.Accepted{}, &freeslot.Error{Code: freeslot.CodeNoMatchingNode, Message: "no node fits", Breakdown: map[string]int{"service": 1}})
		case "busy":
			accepted(i, dispatch.Accepted{}, &freeslot.Error{Code: freeslot.CodeOverloaded, Message: "too many jobs wait", RetryAfter: 200e6})
		case "broken":
			accepted(i, dispatch.Accepted{}, errors.New("secret"))
		default:
			a := d.add(r, sink)
			accepted(i, a, nil)
			switch {
			case a.Position == 0:
				d.runJob(a.JobID)
			case r.Job.TimeoutMS > 0:
				d.finish(a.JobID, freeslot.StateExpired, nil)
			}
		}
	}
}

// runJob is one attempt of a job that has its slots.
func (d *fakeDispatcher) runJob(id string) {
	d.mu.Lock()
	job := d.jobs[id]
	job.status.State, job.status.Node, job.status.Position, job.status.AssignedAtMS = freeslot.StateRunning, "node-1", 0, 1
	job.status.Attempt++
	attempt, sink := job.status.Attempt, job.sink
	d.mu.Unlock()
	if sink != nil {
		sink.Assigned(dispatch.Assignment{JobID: id, Node: "node-1", Attempt: attempt, AssignedAtMS: 1})
	}
	switch job.status.Service {
	case "echo", "tts":
		d.finish(id, freeslot.StateSucceeded, job.payload)
	case "fail":
		d.finish(id, freeslot.StateFailed, nil)
	case "talk":
		d.report(id, freeslot.Progress{Attempt: attempt, Seq: 1, AtMS: 5, Value: json.RawMessage(`{"done":70}`)})
	case "flaky":
		d.requeue(id)
		if attempt < job.attempts {
			d.runJob(id)
		} else {
			d.finish(id, freeslot.StateDead, nil)
		}
	}
}

func (d *fakeDispatcher) add(r dispatch.Request, sink dispatch.Sink) dispatch.Accepted {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	id := fmt.Sprintf("0-%026d", d.next)
	job := &fakeJob{sink: sink, payload: r.Job.Payload, attempts: r.Job.AttemptLimit(), status: freeslot.JobStatus{
		ID: id, Tenant: r.Tenant, Service: r.Job.Service, Class: "c1a55", State: freeslot.StateWaiting, Slots: r.Job.SlotCount(),
		Priority: r.Job.Priority, SubmittedAtMS: 1,
	}}
	if r.Job.TimeoutMS > 0 {
		job.status.DeadlineMS = 1 + r.Job.TimeoutMS
	}
	d.jobs[id] = job
	if d.slots > 0 && d.used+job.status.Slots > d.slots {
		d.waiting = append(d.waiting, id)
		job.status.Position = len(d.waiting)
		return dispatch.Accepted{JobID: id, Position: job.status.Position}
	}
	d.used += job.status.Slots
	return dispatch.Accepted{JobID: id}
}

// leave takes a job that ends off the node or out of the queue, and returns the job that gets its
// slots; "" is none. mu is held.
func (d *fakeDispatcher) leave(id string) (next string) {
	if i := slices.Index(d.waiting, id); i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
		return ""
	}
	d.used -= d.jobs[id].status.Slots
	if len(d.waiting) == 0 || d.used+d.jobs[d.waiting[0]].status.Slots > d.slots {
		return ""
	}
	next, d.waiting = d.waiting[0], d.waiting[1:]
	d.used += d.jobs[next].status.Slots
	return next
}

// finish ends a job, sends its result, and begins the next one.
func (d *fakeDispatcher) finish(id string, state freeslot.State, result json.RawMessage) {
	d.mu.Lock()
	job := d.jobs[id]
	next := d.leave(id)
	job.status.State, job.status.Result, job.status.Position, job.status.FinishedAtMS = state, result, 0, 2
	if state == freeslot.StateFailed || state == freeslot.StateDead && job.status.Service == "flaky" {
		job.status.Error = &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: "it broke"}
	}
	sink, status := job.sink, job.status
	status.Progress = nil
	if state == freeslot.StateCancelled && status.Attempt > 0 { // as the record has it, and the result does not
		job.status.Attempts = []freeslot.PastAttempt{
			{Attempt: status.Attempt, Node: status.Node, BeganAtMS: 1, EndedAtMS: 2, Ended: freeslot.AttemptCancelled},
		}
	}
	d.mu.Unlock()
	if sink != nil {
		sink.Result(status)
	}
	if next != "" {
		d.runJob(next)
	}
}

// requeue makes a running job wait again, in front of all others.
func (d *fakeDispatcher) requeue(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := &d.jobs[id].status
	status.State, status.Position = freeslot.StateWaiting, 1
	status.Failures++
}

func (d *fakeDispatcher) find(tenant, id string) (*fakeJob, error) {
	job, ok := d.jobs[id]
	if !ok || tenant != "" && tenant != job.status.Tenant {
		return nil, &freeslot.Error{Code: freeslot.CodeNotFound, Field: "job_id", Message: "no such job"}
	}
	return job, nil
}

func (d *fakeDispatcher) Cancel(_ context.Context, tenant, id string) (freeslot.JobStatus, error) {
	if d.answering != nil {
		defer d.answering()
	}
	d.mu.Lock()
	job, err := d.find(tenant, id)
	if err != nil {
		d.mu.Unlock()
		return freeslot.JobStatus{}, err
	}
	if job.status.State.Terminal() {
		defer d.mu.Unlock()
		return job.status, nil
	}
	waits := slices.Contains(d.waiting, id)
	status := job.status
	status.State = freeslot.StateCancelling
	d.mu.Unlock()
	d.finish(id, freeslot.StateCancelled, nil)
	if waits {
		d.mu.Lock()
		defer d.mu.Unlock()
		return job.status, nil
	}
	return status, nil
}

func (d *fakeDispatcher) Attach(ctx context.Context, tenant, id string, sink dispatch.Sink) (freeslot.JobStatus, error) {
	if d.hanging != nil {
		d.hanging(ctx)
		if ctx.Err() != nil {
			return freeslot.JobStatus{}, &freeslot.Error{Code: freeslot.CodeUnavailable, Message: ctx.Err().Error()}
		}
	}
	if d.answering != nil {
		defer d.answering()
	}
	if known := d.alias[id]; known != "" {
		id = known
	}
	d.mu.Lock()
	job, err := d.find(tenant, id)
	if err != nil {
		d.mu.Unlock()
		return freeslot.JobStatus{}, err
	}
	before, status := job.sink, job.status
	if status.State == freeslot.StateWaiting {
		status.Node = "" // as the store has it
	}
	if !status.State.Terminal() {
		job.sink = sink
	}
	d.mu.Unlock()
	if before != nil && before != sink && !status.State.Terminal() {
		before.Detached(id)
	}
	if d.attaching != nil {
		d.attaching(id)
	}
	return status, nil
}

func (d *fakeDispatcher) Forget(sink dispatch.Sink) {
	d.mu.Lock()
	for _, job := range d.jobs {
		if job.sink == sink {
			job.sink = nil
		}
	}
	d.mu.Unlock()
	d.forgotten <- sink
}

// fakeAuth knows the tokens "acme", "other" and "default", of tenants of these names, and "root",
// an operator of tenant acme.
type fakeAuth struct{}

func (fakeAuth) Changed() <-chan struct{} { return nil }

func (fakeAuth) Holds(*identity.Principal) bool { return true }

func (fakeAuth) Authenticate(r *http.Request) (identity.Principal, error) {
	switch token := r.Header.Get("Authorization"); token {
	case "Bearer acme", "Bearer other", "Bearer default":
		return identity.Principal{Tenant: token[len("Bearer "):], Role: identity.Client}, nil
	case "Bearer root":
		return identity.Principal{Tenant: "acme", Role: identity.Operator}, nil
	default:
		return identity.Principal{}, &freeslot.Error{Code: freeslot.CodeUnauthenticated, Message: "no token"}
	}
}
