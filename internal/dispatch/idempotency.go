package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// ownerPause is the first pause between two tries to await the job that a key belongs to.
const ownerPause = 5 * time.Millisecond

// keyOwner is the job that owns the idempotency key of a submitted job p.
type keyOwner struct {
	p     *placement
	id    string
	sink  Sink // may be nil
	known freeslot.JobStatus
	err   error
}

// answerOwned answers jobs whose idempotency keys belong to other jobs. A client that submitted the
// same job gets the id of the first one as accepted, and its result. For a different job it gets a
// conflict.
func (s *submit) answerOwned(jobs []*placement, results []cell.SubmitResult) {
	var owners []*keyOwner
	for i, p := range jobs {
		switch placed := results[i].Placement; {
		case results[i].Err != nil || placed.Owner == "":
		case p.request.Run != nil && placed.Owner == p.id: // it was made before, and its record is gone already
			s.decide(p, cell.Placement{Owner: p.id}, nil)
		case placed.Differs:
			s.decide(
				p, cell.Placement{}, keyConflict(placed.Owner, "which differs from this one, expected the same job or another key"),
			)
		default:
			o := &keyOwner{p: p, id: placed.Owner}
			if p.waiter != nil {
				o.sink = p.waiter.sink
			}
			p.abandon()
			owners = append(owners, o)
		}
	}
	forEach(owners, func(o *keyOwner) { o.known, o.err = s.d.Job(s.ctx, o.p.request.Tenant, o.id) })
	joins, joined := owners[:0], make(map[string]bool)
	for _, o := range owners {
		switch {
		case freeslot.CodeOf(o.err) == freeslot.CodeNotFound: // its record can be gone before the key is
			o.err = keyConflict(o.id, "which ended longer ago than results are kept")
		case o.err == nil && o.sink != nil && hasLeft(o.sink):
			o.err = unavailable(
				"the session is ending, and job.idempotency_key was used for job %s: submit it again, or attach, elsewhere", o.id,
			)
		}
		if o.err != nil {
			s.decide(o.p, cell.Placement{}, o.err)
			continue
		}
		o.p.id = o.id
		s.decide(o.p, cell.Placement{Owner: o.id}, nil)
		if o.sink != nil && !joined[o.known.ID] { // all jobs have the same sink
			joined[o.known.ID] = true
			joins = append(joins, o)
		}
	}
	forEach(joins, s.joinOwner)
}

func keyConflict(owner, why string) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Field: "job.idempotency_key",
		Message: "job.idempotency_key was used for job " + owner + ", " + why,
	}
}

// ownersAtOnce bounds the owners that a submit asks Redis about at the same time. One after the
// other, a large batch would take longer than a submit may.
const ownersAtOnce = 64

// forEach calls f for all owners, ownersAtOnce at a time, and waits.
func forEach(owners []*keyOwner, f func(*keyOwner)) {
	var calls sync.WaitGroup
	slots := make(chan struct{}, ownersAtOnce)
	for _, o := range owners {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			f(o)
		})
	}
	calls.Wait()
}

// joinOwner gives the result of an earlier job to the sink. It retries as long as a submit may
// take: the other submit may be undecided yet, or Redis away. After that only the record has the
// result.
func (s *submit) joinOwner(o *keyOwner) {
	ctx, id := s.ctx, o.known.ID
	if l, ok := o.sink.(Leaver); ok {
		// The job is accepted: a client that gives up the submit now still awaits its result.
		end, _ := ctx.Deadline()
		alive, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
		defer cancel()
		defer context.AfterFunc(l.Life(), cancel)()
		ctx = alive
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = ownerPause, 16*ownerPause
	for !s.d.awaits(id, o.sink) {
		status, err := s.d.Attach(ctx, o.known.Tenant, id, o.sink)
		if err == nil && status.State.Terminal() {
			o.sink.Result(status)
		}
		if err == nil {
			return
		}
		if !sleep(ctx, pause.NextBackOff()) {
			// A client that hung up, or went elsewhere, does not take the job from another sink.
			ours := errors.Is(ctx.Err(), context.DeadlineExceeded) && !hasLeft(o.sink)
			if c, ok := s.d.ofJob(id); !s.d.awaits(id, o.sink) && !(ok && ours && c.adopt(&o.known, o.sink)) {
				o.sink.Detached(id)
			}
			return
		}
	}
}
