package embed

import (
	"context"
	"fmt"
	"strconv"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/wire"
)

// Submitted is the outcome of one job of a batch: exactly one field is set.
type Submitted struct {
	Handle *Handle
	Err    error
}

// Submit submits a job and returns when it is accepted. An accepted job may still wait for a free
// slot. The payload must not change before Submit returns. Once the job is known to be accepted,
// the end of ctx changes nothing.
//
// The error holds a *freeslot.Error, or is ErrClosed. With code overloaded, too many jobs have no
// result yet. With code unavailable the job may have been accepted. If ctx has ended, the error
// matches its cause, too.
func (r *Replica) Submit(ctx context.Context, job freeslot.Job) (*Handle, error) {
	if err := r.check("job", &job); err != nil {
		return nil, err
	}
	if _, err := r.jobs.reserve(1); err != nil {
		return nil, err
	}
	var result [1]Submitted
	r.place(ctx, []dispatch.Request{{Tenant: r.cfg.Tenant, Job: &job}}, []int{0}, result[:])
	return result[0].Handle, result[0].Err
}

// SubmitBatch submits jobs with few calls of Redis. It returns when each job is accepted or
// refused, in the order of jobs; see Submit for the errors of single jobs. It returns an error only
// if nothing was submitted: no jobs, no Start before, or ErrClosed.
func (r *Replica) SubmitBatch(ctx context.Context, jobs []freeslot.Job) ([]Submitted, error) {
	if len(jobs) == 0 {
		return nil, freeslot.Invalid("jobs", "is empty")
	}
	results := make([]Submitted, len(jobs))
	requests := make([]dispatch.Request, 0, len(jobs))
	places := make([]int, 0, len(jobs)) // each request's index in jobs
	for i := range jobs {
		if r.check("", &jobs[i]) != nil {
			results[i].Err = r.check("jobs["+strconv.Itoa(i)+"]", &jobs[i])
			continue
		}
		requests = append(requests, dispatch.Request{Tenant: r.cfg.Tenant, Job: &jobs[i]})
		places = append(places, i)
	}
	room, err := r.jobs.reserve(len(requests))
	if err != nil && freeslot.CodeOf(err) != freeslot.CodeOverloaded {
		return nil, err
	}
	for _, i := range places[room:] {
		results[i].Err = err
	}
	for begin := 0; begin < room; begin += r.loaded.Limits.MaxBatch {
		end := min(begin+r.loaded.Limits.MaxBatch, room)
		r.place(ctx, requests[begin:end], places[begin:end], results)
	}
	return results, nil
}

// Run submits a job and waits for its end: Submit, then Handle.Wait.
func (r *Replica) Run(ctx context.Context, job freeslot.Job) (freeslot.JobStatus, error) {
	h, err := r.Submit(ctx, job)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	return h.Wait(ctx)
}

// Cancel asks for a job to be cancelled and returns its status: a running job is cancelling, a
// waiting one is cancelled. The handle, if there is one, gets the end. A job that has ended is
// unchanged. The errors are Submit's, and not_found if the tenant has no such job.
func (r *Replica) Cancel(ctx context.Context, jobID string) (freeslot.JobStatus, error) {
	if err := r.jobs.beginCall(); err != nil {
		return freeslot.JobStatus{}, err
	}
	defer r.jobs.endCall()
	status, err := r.dispatcher.Cancel(ctx, r.cfg.Tenant, jobID)
	return status, gaveUp(ctx, err)
}

func (r *Replica) check(path string, job *freeslot.Job) error {
	if err := wire.CheckPayload(path, job, r.loaded.Limits.MaxPayloadBytes); err != nil {
		return err
	}
	return job.Validate(path)
}

// place submits jobs for which room is reserved, and puts the outcomes at their places.
func (r *Replica) place(ctx context.Context, requests []dispatch.Request, places []int, results []Submitted) {
	r.dispatcher.Submit(ctx, requests, r.jobs, func(k int, a dispatch.Accepted, err error) {
		results[places[k]] = r.jobs.accepted(a, gaveUp(ctx, err))
	})
}

// gaveUp adds to an error the cause of ctx's end, if ctx has ended.
func gaveUp(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		return err
	}
	return fmt.Errorf("%w: %w", err, context.Cause(ctx))
}
