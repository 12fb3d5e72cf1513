package embed

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// ErrClosed is returned by every call of a replica that has been stopped, and by the Wait of every
// handle that had no result by then.
var ErrClosed = errors.New("the replica has been stopped")

// Replica submits jobs and brings their results. It is safe for concurrent use.
type Replica struct {
	cfg    Config
	loaded config.Replica
	log    *zap.Logger
	jobs   *jobs

	mu sync.Mutex // held by Start and Stop; guards the fields that follow
	// replica is nil before Start and after an error of Start.
	replica *replica.Replica
	metrics *prometheus.Registry
	stopped bool

	// dispatcher is set by Start before jobs opens, and read only after that.
	dispatcher *dispatch.Dispatcher
}

// New makes a replica. It does no I/O. The error is a *freeslot.Error that names the bad fields.
func New(cfg Config) (*Replica, error) {
	loaded, err := cfg.load()
	if err != nil {
		return nil, err
	}
	cfg.Tenant = cmp.Or(cfg.Tenant, config.DefaultTenant)
	log := cfg.Logger
	if log == nil {
		log = zap.NewNop()
	}
	return &Replica{cfg: cfg, loaded: loaded, log: log, jobs: newJobs(loaded.Limits.MaxOutstandingPerSession)}, nil
}

// Start connects to Redis and returns once jobs can be submitted. ctx bounds the start only. After
// an error nothing runs, and Start can be called again. The error holds a *freeslot.Error, with
// code conflict if another replica has another heartbeat limit.
func (r *Replica) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped:
		return ErrClosed
	case r.replica != nil:
		return &freeslot.Error{Code: freeslot.CodeConflict, Message: "the replica has been started"}
	}
	// The metrics have a registry of their own, so that one call removes them all at the end.
	metrics := prometheus.NewRegistry()
	started := replica.NewEmbedded(r.loaded, r.cfg.Probes, r.log, metrics)
	if err := started.Start(ctx); err != nil {
		return r.startError(err)
	}
	if r.cfg.Registerer != nil {
		if err := r.cfg.Registerer.Register(metrics); err != nil {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.loaded.DrainTimeout)
			defer cancel()
			return errors.Join(freeslot.Invalid("registerer", "does not take the metrics: %v", err), started.Stop(stopCtx))
		}
	}
	r.replica, r.metrics, r.dispatcher = started, metrics, started.Jobs()
	r.jobs.open()
	return nil
}

// startError gives err a code, and advice if Redis denies a right.
func (r *Replica) startError(err error) error {
	hint := r.loaded.Redis.Denied(err)
	if hint != "" {
		hint = " (" + hint + ")"
	}
	if coded, ok := errors.AsType[*freeslot.Error](err); ok && hint == "" {
		return coded
	}
	return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: err.Error() + hint}
}

// Stop drains the replica as SIGTERM drains a scheduler: it takes no more jobs, and waits for the
// results of outstanding jobs for half of Config.DrainTimeout. Handles without a result then fail
// with ErrClosed; their jobs go on. When ctx or Config.DrainTimeout ends, Stop cuts off whatever is
// left, and its error says so. Only the first call does anything.
func (r *Replica) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.loaded.DrainTimeout)
	defer cancel()
	idle := r.jobs.drain()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil
	}
	r.stopped = true
	if r.replica == nil {
		return nil
	}
	deadline, _ := ctx.Deadline()
	grace := time.NewTimer(time.Until(deadline) / 2)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
	case <-ctx.Done():
	}
	if left := r.jobs.close(); left > 0 {
		r.log.Info("embed.drain_incomplete", zap.Int("jobs_left", left))
	}
	r.dispatcher.Forget(r.jobs)
	err := r.replica.Stop(ctx)
	if r.cfg.Registerer != nil {
		r.cfg.Registerer.Unregister(r.metrics)
	}
	return err
}
