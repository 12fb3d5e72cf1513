package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// fakeDispatcher decides by the name of a job's service what becomes of it:
// "echo" or "tts" succeeds with its payload, "fail" fails, "hold" runs until it is
// cancelled or finished by the test, "nowhere" or "unheard-of" fits no node, "busy" no free one,
// "broken" meets a defect. Everything happens within Submit.
type fakeDispatcher struct {
	mu   sync.Mutex
	next int
	jobs map[string]*fakeJob
	// submitting, when set, is called at the start of each Submit.
	submitting func(reqs []dispatch.Request)
	// attaching, when set, is called within Attach, after it took effect.
	attaching func(jobID string)
	// answering, when set, is called at the end of each Cancel and Attach.
	answering func()
	// forgotten gets every sink that was forgotten, when it is not nil.
	forgotten chan dispatch.Sink
}

type fakeJob struct {
	status freeslot.JobStatus
	sink   dispatch.Sink
}

func newFakeDispatcher() *fakeDispatcher {
	return &fakeDispatcher{jobs: map[string]*fakeJob{}, forgotten: make(chan dispatch.Sink, 1000)}
}

func (d *fakeDispatcher) Submit(_ context.Context, reqs []dispatch.Request, sink dispatch.Sink, accepted func(int, string, error)) {
	if d.submitting != nil {
		d.submitting(reqs)
	}
	for i, r := range reqs {
		switch r.Job.Service {
		case "nowhere", "unheard-of":
			accepted(i, "", &freeslot.Error{Code: freeslot.CodeNoMatchingNode, Message: "no node fits", Breakdown: map[string]int{"service": 1}})
		case "busy":
			accepted(i, "", &freeslot.Error{Code: freeslot.CodeOverloaded, Message: "all nodes are busy", RetryAfter: 200e6})
		case "broken":
			accepted(i, "", errors.New("secret"))
		default:
			id := d.add(r, sink)
			accepted(i, id, nil)
			sink.Assigned(dispatch.Assignment{JobID: id, Node: "node-1", Attempt: 1, AssignedAtMS: 1})
			switch r.Job.Service {
			case "echo", "tts":
				d.finish(id, freeslot.StateSucceeded, r.Job.Payload)
			case "fail":
				d.finish(id, freeslot.StateFailed, nil)
			}
		}
	}
}

func (d *fakeDispatcher) add(r dispatch.Request, sink dispatch.Sink) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	id := fmt.Sprintf("0-%026d", d.next)
	d.jobs[id] = &fakeJob{sink: sink, status: freeslot.JobStatus{
		ID: id, Tenant: r.Tenant, Service: r.Job.Service, State: freeslot.StateRunning, Node: "node-1", Attempt: 1,
		Slots: r.Job.SlotCount(), SubmittedAtMS: 1, AssignedAtMS: 1,
	}}
	return id
}

// finish ends a job and tells whoever waits.
func (d *fakeDispatcher) finish(id string, state freeslot.State, result json.RawMessage) {
	d.mu.Lock()
	job := d.jobs[id]
	job.status.State, job.status.Result, job.status.FinishedAtMS = state, result, 2
	if state == freeslot.StateFailed {
		job.status.Error = &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: "it broke"}
	}
	sink, status := job.sink, job.status
	d.mu.Unlock()
	if sink != nil {
		sink.Result(status)
	}
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
	status := job.status
	status.State = freeslot.StateCancelling
	d.mu.Unlock()
	d.finish(id, freeslot.StateCancelled, nil)
	return status, nil
}

func (d *fakeDispatcher) Attach(_ context.Context, tenant, id string, sink dispatch.Sink) (freeslot.JobStatus, error) {
	if d.answering != nil {
		defer d.answering()
	}
	d.mu.Lock()
	job, err := d.find(tenant, id)
	if err != nil {
		d.mu.Unlock()
		return freeslot.JobStatus{}, err
	}
	before, status := job.sink, job.status
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

// fakeAuth knows the tokens "acme", "other" and "default", of tenants of these names, and
// "root", an operator of tenant acme.
type fakeAuth struct{}

func (fakeAuth) Authenticate(r *http.Request) (tenant string, operator bool, err error) {
	switch token := r.Header.Get("Authorization"); token {
	case "Bearer acme", "Bearer other", "Bearer default":
		return token[len("Bearer "):], false, nil
	case "Bearer root":
		return "acme", true, nil
	default:
		return "", false, &freeslot.Error{Code: freeslot.CodeUnauthenticated, Message: "no token"}
	}
}
