package dispatch

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// followEvery is how often a replica repeats which configuration it goes by.
	followEvery = time.Minute
	// followTimeout bounds one try to have all of a replica go by a new one.
	followTimeout = 2 * ioTimeout
	// behindPause is how often Confirm looks whether all replicas have followed.
	behindPause = 10 * time.Millisecond
)

// ConfigChanged says that nodes are chosen by another configuration now: what waits and may
// begin by it begins at once, and the cells and the other replicas hear that this one goes by
// it. It does not block.
func (d *Dispatcher) ConfigChanged() {
	select {
	case d.configs <- struct{}{}:
	default:
	}
}

// followConfig makes sure that nothing of this replica begins by an older configuration any
// more, and says so, until Stop.
func (d *Dispatcher) followConfig() {
	tick := time.NewTicker(d.cfg.SweepInterval)
	defer tick.Stop()
	var followed *selection.Config
	var at time.Time
	for {
		if cfg := d.nodes.Config(); cfg != followed || time.Since(at) >= followEvery {
			if err := d.follow(cfg, followed); err == nil {
				followed, at = cfg, time.Now()
				d.followed.Store(cfg)
			} else if d.ctx.Err() == nil {
				d.sampled.Warn("config.not_followed", zap.Uint64("version", cfg.Version), zap.Error(err))
			}
		}
		select {
		case <-d.ctx.Done():
			return
		case <-d.configs:
		case <-tick.C:
		}
	}
}

// follow returns when nothing goes by an older configuration than cfg here, every cell has
// heard of it, and that is noted; before is the one of the last time. Whoever chooses from now
// on does so by cfg or a newer one.
func (d *Dispatcher) follow(cfg, before *selection.Config) error {
	ctx, cancel := context.WithTimeout(d.ctx, followTimeout)
	defer cancel()
	if cfg != before {
		if err := d.fence.pass(ctx); err != nil {
			return err
		}
		if err := d.announceConfig(ctx, before != nil); err != nil {
			return err
		}
	}
	return d.presence.Follow(ctx, d.cfg.Replica, cfg.Version, cfg.Generation)
}

func (d *Dispatcher) announceConfig(ctx context.Context, look bool) error {
	errs := make([]error, len(d.clients))
	var all sync.WaitGroup
	for i, c := range d.clients {
		all.Go(func() {
			if errs[i] = c.announceConfig(ctx); errs[i] == nil && look {
				c.wakeSweep() // what was paused until now may begin
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Confirm waits until every replica that is there goes by this version of the configuration or
// a newer one, so that nothing begins by an older one any more, and returns those that do not when
// ctx ends: they are away, or of a release that does not say. The error is a *freeslot.Error:
// that was never known.
func (d *Dispatcher) Confirm(ctx context.Context, version uint64, generation string) (behind []string, err error) {
	tick := time.NewTicker(behindPause)
	defer tick.Stop()
	known := false
	var failure error
	for {
		names, err := d.presence.Behind(ctx, version, generation)
		switch {
		case err == nil && len(names) == 0 && d.follows(version, generation):
			return nil, nil
		case err == nil:
			behind, known = names, true
			if len(behind) == 0 {
				behind = []string{d.cfg.Replica}
			}
		default:
			failure = err // it may be the only one
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		case <-d.ctx.Done():
		}
		if !known {
			return nil, d.coded("confirm", failure)
		}
		return behind, nil
	}
}

// goesBy is for a replica that is not among those that are there, yet.
func (d *Dispatcher) follows(version uint64, generation string) bool {
	at := d.followed.Load()
	return at != nil && at.Generation == generation && at.Version >= version
}

// refresh brings the class of a job that was begun under another configuration up to date.
func (d *Dispatcher) refreshClass(p *placement) {
	if p.class != nil && p.class.ConfigVersion() != d.nodes.ConfigVersion() {
		p.class = d.nodes.Settle(p.request.Job.Service, &p.request.Job.Requirement)
	}
}

// repeated prepares a call of unknown fate once more: with the same candidates, which only the
// script can tell whether one of them has the job, unless its class has been paused since. Then
// it is enqueued, for nobody, where it is not placed: that is idempotent by its id.
func (d *Dispatcher) prepareRepeat(p *placement) {
	before := p.class
	d.refreshClass(p)
	if p.class == before || len(p.candidates) == 0 {
		return
	}
	for _, n := range p.candidates {
		if !p.class.Takes(n) {
			p.giveBack()
			p.candidates, p.enqueue = nil, true
			return
		}
	}
}
