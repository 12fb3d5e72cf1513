package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

// ErrMissing is returned when Redis does not have the scripts, this process may not load
// them, and nobody else has in time. It is ErrNotSent, too, unless the call was under way when the
// time was over: then it may have been carried out.
var ErrMissing = errors.New("redis has no scripts of this release, and no scheduler of it has loaded them")

// ErrNotSent is returned when a call ended before Redis had it, or while Redis had no such script: nothing was changed.
var ErrNotSent = errors.New("not sent to redis")

// Missing says what a process does where Redis does not have a script (NOSCRIPT): after a start of Redis
// without its scripts, a failover, or SCRIPT FLUSH.
type Missing uint8

const (
	// Send is the zero value: a script that is missing is sent with its call.
	Send Missing = iota
	// Keep is for replicas: besides, all scripts that were added are loaded, also those that only agents call,
	// as soon as one is found to be missing; [Runner.Keep] looks each second.
	Keep
	// Await is for agents, whose user in Redis may call scripts by their hashes alone: they
	// wait, up to the call's deadline, until a replica has loaded them. Where none has within half a
	// second and the user may, the agent sends them itself.
	Await
)

const (
	lookEvery = time.Second
	// awaitPatience is longer than replicas take to notice: ten thousand agents that all send their
	// scripts would be the first that a restarted Redis has to do.
	awaitPatience = 500 * time.Millisecond
	// Pauses of an agent that waits; they double.
	shortestPause, longestPause = 20 * time.Millisecond, 200 * time.Millisecond
)

// loading is what a runner knows of who loads the scripts.
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
func (r *Runner) run(ctx context.Context, on rueidis.Client, s *Script, keys, args []string) rueidis.RedisResult {
	result := r.evalsha(ctx, on, s, keys, args)
	if !isMissing(result) {
		r.arrived(result)
		return result
	}
	switch r.cfg.Missing {
	case Await:
		return r.await(ctx, on, s, keys, args)
	case Keep:
		if r.loading.keeping.TryLock() { // else another call loads all; this one needs its own alone
			r.keep(ctx)
			r.loading.keeping.Unlock()
		}
	}
	return r.eval(ctx, on, s, keys, args)
}

// evalsha runs what Redis has under the script's hash.
func (r *Runner) evalsha(ctx context.Context, on rueidis.Client, s *Script, keys, args []string) rueidis.RedisResult {
	hash := s.Hash(r.cfg.Layout.Sharded)
	return on.Do(ctx, on.B().Evalsha().Sha1(hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
}

// eval runs the script's source, which Redis then has.
func (r *Runner) eval(ctx context.Context, on rueidis.Client, s *Script, keys, args []string) rueidis.RedisResult {
	text := s.Text(r.cfg.Layout.Sharded)
	return on.Do(ctx, on.B().Eval().Script(text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
}

func isMissing(result rueidis.RedisResult) bool {
	answer, ok := rueidis.IsRedisErr(result.Error())
	return ok && answer.IsNoScript()
}

// IsRefused reports whether the user may not run the command itself.
func IsRefused(err error) bool {
	var answer *rueidis.RedisError
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOPERM")
}

// await calls the script again until it is there.
func (r *Runner) await(ctx context.Context, on rueidis.Client, s *Script, keys, args []string) rueidis.RedisResult {
	begin, pause := time.Now(), shortestPause
	if r.loading.missing.CompareAndSwap(0, begin.UnixNano()) {
		r.log.Warn("scripts.missing", zap.Stringer("cell", r.cfg.Layout),
			zap.String("reason", "Redis was restarted, failed over or flushed, or no scheduler of this release has been there yet; waiting for one to load them"))
	}
	for {
		if r.loading.sends.Load() || !r.loading.refused.Load() && time.Since(begin) >= awaitPatience {
			result := r.eval(ctx, on, s, keys, args)
			switch err := result.Error(); {
			case IsRefused(err):
				r.loading.refused.Store(true)
				r.loading.sends.Store(false) // the user has lost the right
			case answered(err):
				r.loading.sends.Store(true)
				fallthrough
			default: // no answer says nothing of the user
				return r.awaited(ctx, result)
			}
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return rueidis.NewErrorResult(&missingError{cause: ctx.Err(), refused: true})
		case <-timer.C:
		}
		pause = min(2*pause, longestPause)
		if result := r.evalsha(ctx, on, s, keys, args); !isMissing(result) {
			return r.awaited(ctx, result)
		}
	}
}

// awaited is what the caller of await is told: where its time is over without an answer, what was waited for.
func (r *Runner) awaited(ctx context.Context, result rueidis.RedisResult) rueidis.RedisResult {
	r.arrived(result)
	// The connection's deadline is that of ctx, and can be faster.
	if err := result.Error(); !answered(err) && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
		return rueidis.NewErrorResult(&missingError{cause: err})
	}
	return result
}

// missingError is ErrMissing. refused is true when the last that Redis said was that it has no such script.
type missingError struct {
	cause   error
	refused bool
}

func (e *missingError) Error() string { return ErrMissing.Error() + ": " + e.cause.Error() }
func (e *missingError) Unwrap() error { return e.cause }
func (e *missingError) Is(target error) bool {
	return target == ErrMissing || e.refused && target == ErrNotSent
}

// answered reports whether the server has looked at the call, with err as its end.
func answered(err error) bool {
	var answer *rueidis.RedisError
	return err == nil || errors.As(err, &answer) && !strings.HasPrefix(answer.Error(), "LOADING")
}

// arrived heeds the result of a call that did not find its script missing.
func (r *Runner) arrived(result rueidis.RedisResult) {
	if r.loading.missing.Load() == 0 || !answered(result.Error()) {
		return
	}
	if since := r.loading.missing.Swap(0); since != 0 {
		r.log.Info("scripts.back", zap.Stringer("cell", r.cfg.Layout), zap.Duration("waited", time.Since(time.Unix(0, since))))
	}
}

// Load makes sure that the cell's master has every script that was added.
func (r *Runner) Load(ctx context.Context) error {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	sharded, slot := r.cfg.Layout.Sharded, r.cfg.Layout.Replicated()
	hashes := make([]string, len(all))
	for i, s := range all {
		hashes[i] = s.Hash(sharded)
	}
	// In a cluster, of the master that owns the cell's slot.
	ask := r.client.B().ScriptExists().Sha1(hashes...).Build().SetSlot(slot)
	there, err := r.Do(ctx, "scripts", ask).AsIntSlice()
	if err != nil {
		return fmt.Errorf("look for scripts: %w", err)
	}
	if len(there) != len(hashes) {
		return fmt.Errorf("look for scripts: %d answers about %d", len(there), len(hashes))
	}
	var loads []rueidis.Completed
	for i, s := range all {
		if there[i] == 0 {
			loads = append(loads, r.client.B().ScriptLoad().Script(s.Text(sharded)).Build().SetSlot(slot))
		}
	}
	if len(loads) == 0 {
		return nil
	}
	for _, answer := range r.client.DoMulti(ctx, loads...) {
		if err := answer.Error(); err != nil {
			return fmt.Errorf("load scripts: %w", err)
		}
	}
	r.log.Info("scripts.loaded", zap.Stringer("cell", r.cfg.Layout), zap.Int("scripts", len(loads)))
	return nil
}

// Keep loads what is missing each second until stop is closed, often enough that agents, who wait for it, hardly
// notice. On standalone servers one runner a server is enough: all of them find the same.
func (r *Runner) Keep(stop <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			r.keep(context.Background())
		}
	}
}

// keep loads what is missing. A server that is away is others' to tell of; one that refuses is
// told of once.
func (r *Runner) keep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	err := r.Load(ctx)
	if !IsRefused(err) {
		r.loading.failing.Store(false)
		return
	}
	if r.loading.failing.CompareAndSwap(false, true) {
		r.log.Warn("scripts.refused", zap.Stringer("cell", r.cfg.Layout), zap.Error(err),
			zap.String("reason", "agents whose user may not load scripts wait for others to; `schedctl acl --role replica` has what this user needs"))
	}
}
