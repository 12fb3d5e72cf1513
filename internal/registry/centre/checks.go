package centre

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/registry"
)

// A replica that is cut off sees everything fail. If doubtShare of at least doubtTargets targets
// have failed within doubtWindow, it doubts itself and asks another replica.
const (
	doubtTargets = 10
	doubtShare   = 0.3
	doubtWindow  = 30 * time.Second
)

const (
	// settling is the time after its start in which a replica neither writes nor withdraws a
	// failure.
	settling = 3 * time.Second
	// repeatEvery is how often the failure of a persistent instance is written again while its
	// checks fail: cleanup removes no instance whose checks have stopped.
	repeatEvery = 10 * time.Second
	// maxConfirming is the largest number of other replicas' doubts that are examined at once. The
	// rest comes later.
	maxConfirming = 64
)

// target is an instance that this replica checks.
type target struct {
	registry.Target
	// unmade is true if the check is not made here, because its kind is unknown or no networks are
	// allowed.
	unmade bool
	// judged is true once checks have a result. failure holds it; nil means well.
	judged  bool
	failure error
	// fell is when the target began to fail.
	fell time.Time
	// held is true while its failure waits for another replica's verdict.
	held bool
	// refused is true if its address was not allowed at the last check. That is no verdict.
	refused atomic.Bool
	// fails is true if the last check made here failed. repeated is when that was last written
	// again.
	fails    atomic.Bool
	repeated time.Time
}

// unchecked reports whether the check is not made, or was not allowed the last time.
func (t *target) unchecked() bool { return t.unmade || t.refused.Load() }

// checkLoop keeps up the checks of this replica's share, and writes their verdicts.
func (c *Centre) checkLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-timer.C:
			c.scan()
			c.confirm()
			timer.Reset(jitter(c.cfg.Scan))
		case <-c.wake:
			c.mu.Lock()
			rescan := c.rescan
			c.rescan = false
			c.mu.Unlock()
			if rescan {
				c.scan()
			}
		}
		c.settle()
	}
}

// report records a change. The group calls it.
func (c *Centre) report(name string, failure error) {
	c.mu.Lock()
	if t := c.targets[name]; t != nil {
		t.judged, t.failure = failure == nil || !t.refused.Load(), failure
		if failure != nil {
			t.fell = time.Now()
		}
		if !t.judged {
			c.log.Warn("registry.check_not_allowed", zap.String("instance", name), zap.Error(failure))
		}
	}
	c.mu.Unlock()
	c.signal()
}

// scan learns which instances want checks, and what Redis knows of them.
func (c *Centre) scan() {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	all, err := c.store.Targets(ctx)
	if err != nil {
		c.failed("list instances to check", err)
		var some unread
		if !errors.As(err, &some) {
			return
		}
		all = append(all, c.unread(some)...)
	}
	begin, end := c.compare(all)
	for _, name := range end {
		c.group.Stop(name)
	}
	for _, t := range begin {
		c.begin(t)
	}
}

// begin starts the checks of one more instance.
func (c *Centre) begin(t registry.Target) {
	cfg, err := c.configOf(&t)
	mine := &target{Target: t, unmade: err != nil}
	c.mu.Lock()
	c.targets[t.Name()] = mine
	c.mu.Unlock()
	if err != nil {
		about := t.Service
		if errors.Is(err, errNoNetworks) {
			about = "" // one line is enough, for all services
		}
		if !c.refused[about] {
			c.refused[about] = true
			c.log.Warn("registry.check_refused", zap.String("instance", t.Name()), zap.Error(err))
		}
		return
	}
	c.group.Start(t.Name(), &healthcheck.Config{
		Func: func(ctx context.Context) error {
			err := c.once(ctx, cfg, &mine.refused)
			mine.fails.Store(err != nil)
			return err
		},
		Interval: cfg.Interval, Timeout: cfg.Timeout, Rise: cfg.Rise, Fall: cfg.Fall,
	}, t.Failing == "")
}

// once makes one check. It sets refused to whether the address was not allowed.
func (c *Centre) once(ctx context.Context, cfg *healthcheck.Config, refused *atomic.Bool) error {
	var now atomic.Bool // refused keeps the last check's result while this one runs
	err := healthcheck.Once(ctx, cfg, func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.dial(ctx, network, address)
		if errors.Is(err, errNotAllowed) {
			now.Store(true)
		}
		return conn, err
	})
	refused.Store(now.Load())
	return err
}

// compare returns which checks of this replica's share of all must begin, and which must end. If an
// instance has changed, its check ends and begins: the verdict of an earlier life says nothing
// about this one.
func (c *Centre) compare(all []registry.Target) (begin []registry.Target, end []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := make(map[string]bool, len(all))
	for i := range all {
		name := all[i].Name()
		if !c.alone && !c.share.Has(name) {
			continue
		}
		// Another replica may have written a verdict that differs from this one's. The checks then
		// begin anew from that verdict, because only a change is reported.
		if t := c.targets[name]; t != nil && t.Same(&all[i]) && (t.Failing == "") == (all[i].Failing == "") {
			keep[name] = true
			continue
		}
		begin = append(begin, all[i])
	}
	for name := range c.targets {
		if !keep[name] {
			delete(c.targets, name)
			end = append(end, name)
		}
	}
	return begin, end
}

// settle writes the verdicts that Redis does not have yet. A verdict that cannot be written is
// tried again after the next scan.
func (c *Centre) settle() {
	write, held := c.due()
	for i := range write {
		ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
		err := c.store.Verdict(ctx, &write[i].target, write[i].failing)
		cancel()
		if err != nil {
			c.failed("write a verdict", err)
			continue
		}
		if !write[i].again {
			c.metrics.verdicts.Inc()
		}
		c.mu.Lock()
		if t := c.targets[write[i].target.Name()]; t != nil && t.Epoch == write[i].target.Epoch {
			t.Failing, t.held = write[i].failing, false
		}
		c.mu.Unlock()
	}
	if len(held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	if err := c.store.Doubt(ctx, c.cfg.Self, held); err != nil {
		c.failed("ask another replica", err)
	}
}

// verdict is the result of checks; failing is empty for an instance that is well.
type verdict struct {
	target  registry.Target
	failing string
	again   bool // Redis has it already
}

// due returns the verdicts to write now, and the targets whose failures are held.
func (c *Centre) due() (write []verdict, held []registry.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doubt := !c.alone && c.doubtful()
	// A replica that has just started may not know yet of others, which can judge better.
	early := time.Since(c.began) < settling
	for _, t := range c.targets {
		switch {
		case t.unchecked() && t.Failing != "": // the verdict of a check that is no longer made
			if !early {
				write = append(write, verdict{target: t.Target})
			}
		case !t.judged || (t.failure == nil) == (t.Failing == ""):
			t.held = false
			if t.Persistent && t.Failing != "" && t.fails.Load() && !doubt && time.Since(t.repeated) >= repeatEvery {
				t.repeated = time.Now()
				write = append(write, verdict{t.Target, t.Failing, true})
			}
		case t.failure != nil && early:
		case t.failure != nil && !c.alone && (t.held || doubt):
			t.held = true
			held = append(held, t.Target)
		default:
			write = append(write, verdict{target: t.Target, failing: reason(t.failure)})
		}
	}
	return write, held
}

// doubtful reports whether the failures at one time are so frequent that the fault may be this
// replica's own. The caller holds mu.
func (c *Centre) doubtful() bool {
	fresh := 0
	for _, t := range c.targets {
		if t.judged && t.failure != nil && time.Since(t.fell) < doubtWindow {
			fresh++
		}
	}
	return len(c.targets) >= doubtTargets && float64(fresh) >= doubtShare*float64(len(c.targets))
}

// confirm checks the targets that other replicas doubt. A target that fails here, too, is failing.
func (c *Centre) confirm() {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	doubts, err := c.store.Doubts(ctx, c.cfg.Self)
	cancel()
	if err != nil {
		c.failed("list doubts of other replicas", err)
		return
	}
	for i := range doubts {
		name := doubts[i].Name()
		c.mu.Lock()
		begin := !c.confirming[name] && len(c.confirming) < maxConfirming && c.ctx.Err() == nil
		if begin {
			c.confirming[name] = true
		}
		c.mu.Unlock()
		if begin {
			c.loops.Go(func() {
				c.confirmOne(&doubts[i])
				c.mu.Lock()
				delete(c.confirming, name)
				c.mu.Unlock()
			})
		}
	}
}

func (c *Centre) confirmOne(t *registry.Target) {
	cfg, err := c.configOf(t)
	if err != nil {
		return
	}
	var refused atomic.Bool
	var failure error
	for range cfg.Fall {
		if failure = c.once(c.ctx, cfg, &refused); failure == nil || refused.Load() || c.ctx.Err() != nil {
			break
		}
	}
	if refused.Load() || c.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	if failure == nil {
		err = c.store.Trust(ctx, t)
	} else {
		err = c.store.Verdict(ctx, t, reason(failure))
	}
	if err != nil {
		c.failed("write a verdict", err)
	}
}

// maxReason is the length limit of the reason that is written for a failure, in bytes.
const maxReason = 256

var errNoReason = errors.New("the check failed")

func reason(failure error) string {
	if failure == nil {
		return ""
	}
	text := failure.Error()
	if text == "" {
		text = errNoReason.Error()
	}
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
