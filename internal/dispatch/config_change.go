package dispatch

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// followEvery is the interval at which a replica repeats which configuration it follows.
	followEvery = time.Minute
	// followTimeout bounds one try to make this replica follow a new configuration.
	followTimeout = 2 * ioTimeout
	// behindPause is the pause between two checks of Confirm that all replicas have followed.
	behindPause = 10 * time.Millisecond
)

// ConfigChanged tells the dispatcher that nodes are now chosen by another configuration. Waiting
// jobs that it allows begin at once, and the cells and the other replicas learn that this replica
// follows it. It does not block.
func (d *Dispatcher) ConfigChanged() {
	select {
	case d.configs <- struct{}{}:
	default:
	}
}

// followConfig is the loop that waits until nothing in this replica uses an older configuration,
// and reports that.
func (d *Dispatcher) followConfig() {
	away := logging.NewOutage(d.log, "config.not_followed", "config.followed_again")
	var at time.Time
	look := func() {
		if cfg, before := d.nodes.Config(), d.followed.Load(); cfg != before || time.Since(at) >= followEvery {
			if err := d.follow(cfg, before); err == nil {
				away.Over()
				at = time.Now()
				d.followed.Store(cfg)
			} else if d.ctx.Err() == nil {
				away.Failed(err, zap.Uint64("version", cfg.Version))
			}
		}
	}
	look()
	d.tick(d.cfg.SweepInterval, d.configs, look)
}

// follow returns when nothing here uses an older configuration than cfg, every cell has heard of
// cfg, and that is recorded. Choices from now on use cfg or a newer one. before is the
// configuration of the previous call.
func (d *Dispatcher) follow(cfg, before *selection.Config) error {
	ctx, cancel := context.WithTimeout(d.ctx, followTimeout)
	defer cancel()
	if cfg != before {
		if err := d.fence.pass(ctx); err != nil {
			return err
		}
		err := d.eachCell(func(c *cellClient) error {
			err := c.announceConfig(ctx)
			if err == nil && before != nil {
				c.wakeSweep() // paused jobs may begin
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return d.presence.Follow(ctx, d.cfg.Replica, cfg.Version, cfg.Generation)
}

// announceConfig announces a new configuration to the cell. The cell then forgets which classes the
// nodes serve by an older one.
func (c *cellClient) announceConfig(ctx context.Context) error {
	c.announced.mu.Lock() // an older configuration must not arrive after a newer one
	defer c.announced.mu.Unlock()
	cfg := c.d.nodes.Config()
	if c.announced.config == cfg {
		return nil
	}
	if _, err := c.cell.ConfigTold(ctx, cfg.Version, cfg.Generation); err != nil {
		return err
	}
	c.announced.config = cfg
	return nil
}

// announceAgain announces the configuration to a cell that may have lost it.
func (c *cellClient) announceAgain(ctx context.Context) error {
	c.announced.mu.Lock()
	c.announced.config = nil
	c.announced.mu.Unlock()
	return c.announceConfig(ctx)
}

// Confirm waits until every replica follows this version of the configuration or a newer one, so
// that nothing begins by an older one. If ctx ends first, it returns the replicas that do not
// follow: they are away, or their release does not report it. If it never learned which replicas
// follow, it returns a *freeslot.Error.
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
			failure = err // perhaps the only one
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

// follows reports whether this replica follows the version. It may not be among the replicas that
// Redis knows yet.
func (d *Dispatcher) follows(version uint64, generation string) bool {
	at := d.followed.Load()
	return at != nil && at.Generation == generation && at.Version >= version
}

// UnawareOfExpects returns the running replicas whose release does not know what pools expect of
// their nodes. The error is a *freeslot.Error.
func (d *Dispatcher) UnawareOfExpects(ctx context.Context) ([]string, error) {
	names, err := d.presence.Lacking(ctx, presence.FeatureExpects)
	return names, d.coded("read what replicas know", err)
}
