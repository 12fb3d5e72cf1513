package cell

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

// ErrScriptsMissing is returned when Redis does not have the scripts, this process may not load
// them, and nobody else has in time. It is ErrNotSent, too, unless the call was under way when the
// time was over: then it may have been carried out.
var ErrScriptsMissing = errors.New("redis has no scripts of this release, and no scheduler of it has loaded them")

// ScriptSource says what is done where Redis does not have the scripts: after a start of it
// without them, a failover, or SCRIPT FLUSH.
type ScriptSource uint8

const (
	// ScriptsSent is the zero value: a script that is missing is sent with its call.
	ScriptsSent ScriptSource = iota
	// ScriptsKept is for replicas: besides, all scripts are loaded, also those that only agents call,
	// as soon as one is found to be missing; a cell that was started looks each second.
	ScriptsKept
	// ScriptsAwaited is for agents, whose user in Redis may call scripts by their hashes alone: they
	// wait, up to the call's deadline, until a replica has loaded them. Where none has within half a
	// second and the user may, the agent sends them itself.
	ScriptsAwaited
)

const (
	scriptsLook = time.Second
	// scriptsPatience is longer than replicas take to notice: ten thousand agents that all send their
	// scripts would be the first that a restarted Redis has to do.
	scriptsPatience = 500 * time.Millisecond
	// Pauses of an agent that waits; they double.
	shortestScriptsPause, longestScriptsPause = 20 * time.Millisecond, 200 * time.Millisecond
)

// loading is what a cell knows of who loads the scripts.
type loading struct {
	// sends: nobody else did, and the user may. refused: the user may not. At most one of them is true.
	sends, refused atomic.Bool
	// missing is since when (Unix, ns) the log has said that the scripts are missing and not that they are back; 0 is
	// that it has not.
	missing atomic.Int64
	// failing is true while the log has said that they cannot be kept.
	failing atomic.Bool
	// keeping is held by the call that loads what is missing.
	keeping sync.Mutex
}

// run calls a script, and sees to it where Redis does not have it.
func (c *Cell) run(ctx context.Context, on rueidis.Client, s *script, keys, args []string) rueidis.RedisResult {
	result := s.call(ctx, on, keys, args)
	if !isMissing(result) {
		c.arrived(result)
		return result
	}
	switch c.cfg.Scripts {
	case ScriptsAwaited:
		return c.await(ctx, on, s, keys, args)
	case ScriptsKept:
		if c.loading.keeping.TryLock() { // else another call loads all; this one needs its own alone
			c.keep(ctx)
			c.loading.keeping.Unlock()
		}
	}
	return s.send(ctx, on, keys, args)
}

func isMissing(result rueidis.RedisResult) bool {
	answer, ok := rueidis.IsRedisErr(result.Error())
	return ok && answer.IsNoScript()
}

// isRefused reports whether the user may not run the command itself.
func isRefused(err error) bool {
	var answer *rueidis.RedisError
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOPERM")
}

// await calls the script again until it is there.
func (c *Cell) await(ctx context.Context, on rueidis.Client, s *script, keys, args []string) rueidis.RedisResult {
	begin, pause := time.Now(), shortestScriptsPause
	if c.loading.missing.CompareAndSwap(0, begin.UnixNano()) {
		c.log.Warn("scripts.missing", zap.Stringer("cell", c.layout),
			zap.String("reason", "Redis was restarted, failed over or flushed, or no scheduler of this release has been there yet; waiting for one to load them"))
	}
	for {
		if c.loading.sends.Load() || !c.loading.refused.Load() && time.Since(begin) >= scriptsPatience {
			result := s.send(ctx, on, keys, args)
			switch err := result.Error(); {
			case isRefused(err):
				c.loading.refused.Store(true)
				c.loading.sends.Store(false) // the user has lost the right
			case answered(err):
				c.loading.sends.Store(true)
				fallthrough
			default: // no answer says nothing of the user
				return c.awaited(ctx, result)
			}
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return rueidis.NewErrorResult(&scriptsMissing{cause: ctx.Err(), refused: true})
		case <-timer.C:
		}
		pause = min(2*pause, longestScriptsPause)
		if result := s.call(ctx, on, keys, args); !isMissing(result) {
			return c.awaited(ctx, result)
		}
	}
}

// awaited is what the caller of await is told: where its time is over without an answer, what was waited for.
func (c *Cell) awaited(ctx context.Context, result rueidis.RedisResult) rueidis.RedisResult {
	c.arrived(result)
	// The connection's deadline is that of ctx, and can be faster.
	if err := result.Error(); !answered(err) && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
		return rueidis.NewErrorResult(&scriptsMissing{cause: err})
	}
	return result
}

// scriptsMissing is ErrScriptsMissing. refused is true when the last that Redis said was that it has no such script.
type scriptsMissing struct {
	cause   error
	refused bool
}

func (e *scriptsMissing) Error() string { return ErrScriptsMissing.Error() + ": " + e.cause.Error() }
func (e *scriptsMissing) Unwrap() error { return e.cause }
func (e *scriptsMissing) Is(target error) bool {
	return target == ErrScriptsMissing || e.refused && target == ErrNotSent
}

// answered reports whether the server has looked at the call, with err as its end.
func answered(err error) bool {
	var answer *rueidis.RedisError
	return err == nil || errors.As(err, &answer) && !strings.HasPrefix(answer.Error(), "LOADING")
}

// arrived heeds the result of a call that did not find its script missing.
func (c *Cell) arrived(result rueidis.RedisResult) {
	if c.loading.missing.Load() == 0 || !answered(result.Error()) {
		return
	}
	if since := c.loading.missing.Swap(0); since != 0 {
		c.log.Info("scripts.back", zap.Stringer("cell", c.layout), zap.Duration("waited", time.Since(time.Unix(0, since))))
	}
}

// LoadScripts makes sure that the cell's master has every script of this release, those that only
// agents call too.
func (c *Cell) LoadScripts(ctx context.Context) error {
	hashes := make([]string, len(c.scripts.all))
	for i, s := range c.scripts.all {
		hashes[i] = s.sha
	}
	// In a cluster, of the master that owns the cell's slot.
	ask := c.client.B().ScriptExists().Sha1(hashes...).Build().SetSlot(c.layout.Version())
	there, err := c.do(ctx, "scripts", ask).AsIntSlice()
	if err != nil {
		return fmt.Errorf("look for scripts: %w", err)
	}
	if len(there) != len(hashes) {
		return fmt.Errorf("look for scripts: %d answers about %d", len(there), len(hashes))
	}
	var loads []rueidis.Completed
	for i, s := range c.scripts.all {
		if there[i] == 0 {
			loads = append(loads, c.client.B().ScriptLoad().Script(s.text).Build().SetSlot(c.layout.Version()))
		}
	}
	if len(loads) == 0 {
		return nil
	}
	for _, answer := range c.client.DoMulti(ctx, loads...) {
		if err := answer.Error(); err != nil {
			return fmt.Errorf("load scripts: %w", err)
		}
	}
	c.log.Info("scripts.loaded", zap.Stringer("cell", c.layout), zap.Int("scripts", len(loads)))
	return nil
}

// keepsScripts is true for one cell of each server: on one that is no cluster all find the same.
func (c *Cell) keepsScripts() bool {
	return c.cfg.Scripts == ScriptsKept && (c.layout.Sharded || c.cfg.Index < c.cfg.Servers)
}

// keepScripts looks often enough that agents, who wait for it, hardly notice.
func (c *Cell) keepScripts() {
	tick := time.NewTicker(scriptsLook)
	defer tick.Stop()
	for {
		select {
		case <-c.stopping:
			return
		case <-tick.C:
			c.keep(context.Background())
		}
	}
}

// keep loads what is missing. A server that is away is others' to tell of; one that refuses is
// told of once.
func (c *Cell) keep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	err := c.LoadScripts(ctx)
	if !isRefused(err) {
		c.loading.failing.Store(false)
		return
	}
	if c.loading.failing.CompareAndSwap(false, true) {
		c.log.Warn("scripts.refused", zap.Stringer("cell", c.layout), zap.Error(err),
			zap.String("reason", "agents whose user may not load scripts wait for others to; `schedctl acl --role replica` has what this user needs"))
	}
}
