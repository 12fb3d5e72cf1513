package bulk

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// atOnce targets are touched at the same time, and the next ones turn later: 200 targets a second.
	atOnce = 10
	turn   = 50 * time.Millisecond
	// writeEvery is how often the progress is written, which renews the lease.
	writeEvery = 500 * time.Millisecond
	lease      = 6 * time.Second
	// limitedPause is the time between two jobs of a tenant beyond its submit rate.
	limitedPause = 100 * time.Millisecond
	// retryPause is the time before another try while Redis does not answer.
	retryPause  = time.Second
	callTimeout = 5 * time.Second
)

// runner works on operations. It holds nothing but the ids of the ones that it works on.
type runner struct {
	store *store
	actor actor
	// name is the replica's, and life tells its lives apart.
	name, life string
	log        *zap.Logger
	failing    *logging.Outage

	ctx    context.Context
	cancel context.CancelFunc
	looks  chan struct{}
	all    sync.WaitGroup

	mu      sync.Mutex // guards working
	working map[string]bool
}

func newRunner(s *store, a actor, replica string, log *zap.Logger) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	return &runner{
		store: s, actor: a, name: replica, life: ulid.Make().String(), log: log,
		failing: logging.NewOutage(log, "bulk.read_failed", "bulk.read_again"),
		ctx:     ctx, cancel: cancel, looks: make(chan struct{}, 1), working: map[string]bool{},
	}
}

func (r *runner) owner() string { return r.name + "/" + r.life }

// start begins to look for operations that no one works on: now, and when the replicas change.
func (r *runner) start(context.Context) error {
	r.look()
	r.all.Go(r.loop)
	return nil
}

// stop ends the work. Another replica goes on with it.
func (r *runner) stop(context.Context) error {
	r.cancel()
	r.all.Wait() // each call has a deadline
	return nil
}

// look has the loop look again.
func (r *runner) look() {
	select {
	case r.looks <- struct{}{}:
	default:
	}
}

func (r *runner) loop() {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.looks:
		case <-timer.C:
		}
		if again := r.takeOver(); again > 0 {
			timer.Reset(again)
		}
	}
}

// takeOver works on the operations without a lease. It returns when the next lease can end, and 0
// if no one else works on one.
func (r *runner) takeOver() (again time.Duration) {
	ctx, cancel := context.WithTimeout(r.ctx, callTimeout)
	defer cancel()
	all, nowMS, err := r.store.all(ctx)
	if err != nil {
		if r.ctx.Err() == nil {
			r.failing.Failed(err)
		}
		return retryPause
	}
	r.failing.Over()
	for i := range all {
		o := &all[i]
		if o.State != Running || o.Owner == r.owner() {
			continue
		}
		left := time.Duration(o.LeaseMS-nowMS) * time.Millisecond
		if left <= 0 {
			r.work(o.ID)
		} else if again == 0 || left < again {
			again = left
		}
	}
	return again
}

// work has this replica work on an operation, unless it does.
func (r *runner) work(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.working[id] || r.ctx.Err() != nil {
		return
	}
	r.working[id] = true
	r.all.Go(func() {
		r.run(id)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.working, id)
	})
}

// run works on an operation until it is over, or another replica has it.
func (r *runner) run(id string) {
	for r.ctx.Err() == nil {
		o, targets, err := r.claim(id)
		if err == nil && o == nil {
			return
		}
		if err == nil {
			err = r.touch(o, targets)
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, errChanged): // somebody stops it, or has taken it over
		default:
			r.log.Warn("bulk.waits", zap.String("operation", id), zap.Error(err))
			r.pause(retryPause)
		}
	}
}

// claim takes the lease. It returns nil if there is nothing to do, or another replica does it.
func (r *runner) claim(id string) (*record, []string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, callTimeout)
	defer cancel()
	o, targets, err := r.store.read(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if o.BulkOperation == nil || o.State != Running || o.Owner != r.owner() && o.LeaseMS > o.nowMS {
		return nil, nil, nil
	}
	o.Count = len(targets) // an operator may have edited them
	return &o, targets, r.save(&o)
}

// save writes the operation and renews the lease.
func (r *runner) save(o *record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), callTimeout)
	defer cancel()
	nowMS := o.now()
	next := *o.BulkOperation
	next.Owner, next.LeaseMS = r.owner(), nowMS+lease.Milliseconds()
	switch {
	case r.ctx.Err() != nil:
		next.Owner, next.LeaseMS = "", 0
	case next.Done >= next.Count: // more, if targets were lost or edited
		next.State, next.EndedMS = Ended, nowMS
	case next.Stopping:
		next.State, next.EndedMS = Stopped, nowMS
	}
	if next.over() {
		next.Owner, next.LeaseMS, next.Stopping = "", 0, false
	}
	written := *o
	written.BulkOperation = &next
	if err := r.store.write(ctx, &written, nil); err != nil {
		return err
	}
	*o = written
	return nil
}

// touch touches the targets that are left. It returns nil once the operation is over.
func (r *runner) touch(o *record, targets []string) error {
	saved, size, wait := time.Now(), atOnce, turn
	for !o.over() && r.ctx.Err() == nil {
		next := targets[o.Done:min(o.Done+size, len(targets))]
		outcomes, err := r.each(o.BulkOperation, next)
		switch {
		case freeslot.CodeOf(err) == freeslot.CodeRateLimited: // from now on at the rate of the tenant
			size, wait = 1, limitedPause
		case err != nil:
			return err
		default:
			for _, outcome := range outcomes {
				o.Outcomes[outcome]++
			}
			o.Done += len(next)
		}
		if o.Done >= len(targets) || time.Since(saved) >= writeEvery {
			if err := r.save(o); err != nil {
				return err
			}
			saved = time.Now()
		}
		if !o.over() {
			r.pause(wait)
		}
	}
	if r.ctx.Err() != nil {
		return r.save(o) // another replica need not wait for the lease to end
	}
	r.log.Info(
		"bulk.ended", zap.String("operation", o.ID), zap.String("action", string(o.Action)),
		zap.String("state", string(o.State)),
		zap.Int("done", o.Done), zap.Any("outcomes", o.Outcomes),
	)
	return nil
}

// each touches targets at the same time. It returns an error, and no outcomes, if Redis could not
// be asked about one of them: then all are touched again.
func (r *runner) each(o *BulkOperation, targets []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, callTimeout)
	defer cancel()
	outcomes, errs := make([]string, len(targets)), make([]error, len(targets))
	var calls sync.WaitGroup
	for i, target := range targets {
		calls.Go(func() {
			outcomes[i], errs[i] = outcomeOf(r.actor.act(ctx, o, target))
		})
	}
	calls.Wait()
	return outcomes, errors.Join(errs...)
}

// outcomeOf returns how a target came out, or the error if that is not known.
func outcomeOf(err error) (string, error) {
	var refused *freeslot.Error
	switch {
	case err == nil:
		return outcomeDone, nil
	case !errors.As(err, &refused), refused.Code == freeslot.CodeUnavailable, refused.Code == freeslot.CodeRateLimited:
		return "", err
	default:
		return string(refused.Code), nil
	}
}

func (r *runner) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.ctx.Done():
	}
}
