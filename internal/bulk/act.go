package bulk

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Control lists what the package calls of *cell.Set.
type Control interface {
	Drain(ctx context.Context, node string) error
	Undrain(ctx context.Context, node string) error
}

// Again submits a job again that did not succeed, unless that was done before.
type Again func(ctx context.Context, tenant, jobID string) error

// actor touches targets.
type actor struct {
	jobs    Jobs
	control Control
	again   Again
}

// act touches one target of an operation. To touch it again changes nothing.
func (a *actor) act(ctx context.Context, o *BulkOperation, target string) error {
	switch o.Action {
	case Requeue:
		return a.again(ctx, o.Tenant, target)
	case Cancel:
		return a.cancel(ctx, o, target)
	case Drop:
		_, err := a.jobs.Drop(ctx, o.Tenant, target)
		// What is gone already was dropped here before, or by somebody else.
		if freeslot.CodeOf(err) == freeslot.CodeNotFound && o.Filter != nil {
			return nil
		}
		return err
	case Drain:
		return a.control.Drain(ctx, target)
	case Undrain:
		return a.control.Undrain(ctx, target)
	default:
		return freeslot.Invalid("action", "is %q, which this release does not know", o.Action)
	}
}

// cancel leaves a job alone that has begun since a plan for jobs that wait: no one has agreed to
// stop it.
func (a *actor) cancel(ctx context.Context, o *BulkOperation, target string) error {
	j, err := a.jobs.Job(ctx, o.Tenant, target)
	waits := o.Filter != nil && o.Filter.State != freeslot.StateRunning
	switch {
	case err != nil:
		return err
	case j.State == freeslot.StateCancelled || j.State == freeslot.StateCancelling:
		return nil
	case j.State.Terminal() || waits && j.State == freeslot.StateRunning:
		return &freeslot.Error{Code: freeslot.CodeConflict, Message: "the job is " + string(j.State) + " by now"}
	}
	var seen cell.Seen
	if waits { // it may begin before the call arrives
		seen.State = j.State
	}
	_, err = a.jobs.CancelIf(ctx, o.Tenant, target, seen)
	return err
}
