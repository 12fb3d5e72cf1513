package script

// This file has the NOSCRIPT policy: what happens if Redis does not have a script.
//
// A restart, a failover or SCRIPT FLUSH makes Redis lose its scripts. It then answers NOSCRIPT.
// Nothing has run, so this package handles it, as Config.Missing states:
//
//	Send   send the script's text with the call (EVAL)                  schedctl, locks, name lists
//	Keep   the same, and load all scripts; look for lost ones each second   replicas
//	Await  repeat EVALSHA until a replica has loaded the script         agents
//
// An agent waits for two reasons. Its user in Redis may only call scripts by hash. And ten thousand
// agents that all send their scripts would be the first load of a restarted Redis. After
// awaitPatience an agent tries to send the script itself. If its user may not, it waits until the
// call's deadline; the call then fails with ErrMissing.

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

	"github.com/freeslot/freeslot/internal/beat"
)

// ErrMissing is returned if Redis does not have the scripts, this process may not load them, and no
// other process has loaded them in time. It is ErrNotSent too, unless the call was running at its
// deadline: then it may have been carried out.
var ErrMissing = errors.New("redis has no scripts of this release, and no scheduler of it has loaded them")

// ErrNotSent is returned if a call ended before Redis had it, or while Redis had no such script.
// Nothing was changed.
var ErrNotSent = errors.New("not sent to redis")

// Missing says what a process does on NOSCRIPT; see the top of this file.
type Missing uint8

const (
	// Send is the zero value: the call sends the missing script.
	Send Missing = iota
	// Keep is for replicas. It also loads all added scripts, including those that only agents call.
	// [Runner.Keep] looks for lost ones each second.
	Keep
	// Await is for agents: they wait until a replica has loaded the script, or the call's deadline.
	Await
)

const (
	lookEvery = time.Second
	// awaitPatience is longer than replicas need to notice the loss.
	awaitPatience = 500 * time.Millisecond
	// The pauses of a waiting agent. They double.
	shortestPause, longestPause = 20 * time.Millisecond, 200 * time.Millisecond
)

// loading records which process loads the scripts.
type loading struct {
	// sends is true if no replica loaded them, and this user may. refused is true if this user may
	// not. At most one of them is true.
	sends, refused atomic.Bool
	// missing is the time (Unix, ns) at which the log reported the scripts missing. It is 0 if it
	// did not, or has reported them back since.
	missing atomic.Int64
	// failing is true after the log reported that the scripts cannot be kept.
	failing atomic.Bool
	// keeping is held by the call that loads what is missing.
	keeping sync.Mutex
}

// run calls a script, and handles NOSCRIPT.
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
		if r.loading.keeping.TryLock() { // otherwise another call loads all scripts
			r.keep(ctx)
			r.loading.keeping.Unlock()
		}
	}
	return r.eval(ctx, on, s, keys, args)
}

// evalsha runs the script that Redis has under its hash.
func (r *Runner) evalsha(ctx context.Context, on rueidis.Client, s *Script, keys, args []string) rueidis.RedisResult {
	hash := s.Hash(r.cfg.Layout.Sharded)
	return on.Do(ctx, on.B().Evalsha().Sha1(hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
}

// eval sends and runs the script's text. Redis keeps the script.
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

// await repeats the call until the script is there.
func (r *Runner) await(ctx context.Context, on rueidis.Client, s *Script, keys, args []string) rueidis.RedisResult {
	begin, pause := time.Now(), shortestPause
	if r.loading.missing.CompareAndSwap(0, begin.UnixNano()) {
		r.log.Warn("scripts.missing", zap.Stringer("cell", r.cfg.Layout),
			zap.String(
				"reason",
				"Redis was restarted, failed over or flushed, or no scheduler of this release has been there yet; waiting for "+
					"one to load them",
			))
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
			default: // without an answer nothing is known of the user's rights
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

// awaited returns the result of await. If the time is over without an answer, that is ErrMissing.
func (r *Runner) awaited(ctx context.Context, result rueidis.RedisResult) rueidis.RedisResult {
	r.arrived(result)
	// The connection has the deadline of ctx, too, and its error can come first.
	if err := result.Error(); !answered(err) && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
		return rueidis.NewErrorResult(&missingError{cause: err})
	}
	return result
}

// missingError is ErrMissing. refused is true if Redis' last answer was NOSCRIPT.
type missingError struct {
	cause   error
	refused bool
}

func (e *missingError) Error() string { return ErrMissing.Error() + ": " + e.cause.Error() }
func (e *missingError) Unwrap() error { return e.cause }
func (e *missingError) Is(target error) bool {
	return target == ErrMissing || e.refused && target == ErrNotSent
}

// answered reports whether the server has handled the call that ended with err.
func answered(err error) bool {
	var answer *rueidis.RedisError
	return err == nil || errors.As(err, &answer) && !strings.HasPrefix(answer.Error(), "LOADING")
}

// arrived logs that the scripts are back, after a call that found its script.
func (r *Runner) arrived(result rueidis.RedisResult) {
	if r.loading.missing.Load() == 0 || !answered(result.Error()) {
		return
	}
	if since := r.loading.missing.Swap(0); since != 0 {
		r.log.Info(
			"scripts.back", zap.Stringer("cell", r.cfg.Layout), zap.Duration("waited", time.Since(time.Unix(0, since))),
		)
	}
}

// Load loads the added scripts that the cell's master does not have.
func (r *Runner) Load(ctx context.Context) error {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	sharded, slot := r.cfg.Layout.Sharded, r.cfg.Layout.Replicated()
	hashes := make([]string, len(all))
	for i, s := range all {
		hashes[i] = s.Hash(sharded)
	}
	// In a cluster, ask the master that owns the cell's slot.
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

// Keep loads missing scripts each second until stop is closed. It looks that often because agents
// wait for it. On standalone servers one runner for each server is enough.
func (r *Runner) Keep(stop <-chan struct{}) {
	for {
		pause := time.NewTimer(beat.Pause(lookEvery))
		select {
		case <-stop:
			pause.Stop()
			return
		case <-pause.C:
			r.keep(context.Background())
		}
	}
}

// keep loads missing scripts. It logs once that the server refuses. Unreachable servers are logged
// elsewhere.
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
			zap.String(
				"reason",
				"agents whose user may not load scripts wait for others to; `schedctl acl --role replica` has what this user needs",
			))
	}
}
