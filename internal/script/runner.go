package script

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

// Config configures a Runner.
type Config struct {
	// Layout names the cell's keys.
	Layout Layout
	// CallTimeout bounds every call to Redis that has no deadline of its own.
	CallTimeout time.Duration
	// Missing says what happens on NOSCRIPT.
	Missing Missing
	// Acknowledge is how many of Redis' replicas must have a write before it counts.
	Acknowledge Acknowledge
}

// Runner runs scripts and plain commands in one cell. All features with keys there share it. It is
// safe for concurrent use.
type Runner struct {
	cfg     Config
	client  rueidis.Client
	log     *zap.Logger
	metrics *metrics
	loading loading

	mu  sync.Mutex
	all []*Script // guarded by mu; see Add
}

// NewRunner makes a runner on client, which the caller keeps and closes. It does no I/O. reg may be
// nil. A second runner on one registerer panics.
func NewRunner(cfg Config, client rueidis.Client, logger *zap.Logger, reg prometheus.Registerer) *Runner {
	return &Runner{cfg: cfg, client: client, log: logger, metrics: newMetrics(reg)}
}

// Layout returns the names of the cell's keys.
func (r *Runner) Layout() Layout { return r.cfg.Layout }

// CallTimes returns a histogram of the time of all calls, with LatencyBuckets. No registry has it.
func (r *Runner) CallTimes() prometheus.Histogram { return r.metrics.all }

// B returns a builder of plain commands for Do.
func (r *Runner) B() rueidis.Builder { return r.client.B() }

// ConfirmTimeout returns the bound for a call that may wait for Redis' replicas.
func (r *Runner) ConfirmTimeout() time.Duration {
	if r.cfg.Acknowledge.Replicas == 0 {
		return r.cfg.CallTimeout
	}
	return r.cfg.CallTimeout + r.cfg.Acknowledge.Timeout
}

// Add adds the scripts of a feature to those that [Runner.Load] and [Runner.Keep] load. A script
// that was added before is not added again. Call works without Add.
func (r *Runner) Add(set Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range set {
		if !slices.Contains(r.all, s) {
			r.all = append(r.all, s)
		}
	}
}

// Call runs a script. The result holds what Redis returned, or an error. The package comment, "Who
// repeats a call", tells whether the script ran despite an error.
func (r *Runner) Call(ctx context.Context, s *Script, keys, args []string) rueidis.RedisResult {
	return r.callOn(ctx, r.client, s, keys, args)
}

// CallApart is Call on a connection that no other call shares at the same time, so that it does not
// wait behind large values.
func (r *Runner) CallApart(ctx context.Context, s *Script, keys, args []string) rueidis.RedisResult {
	return r.timed(ctx, s.name, func(ctx context.Context) rueidis.RedisResult {
		numkeys := strconv.Itoa(len(keys))
		cmd := r.client.B().Arbitrary("EVALSHA", s.Hash(r.cfg.Layout.Sharded), numkeys).Keys(keys...).Args(args...)
		result := r.client.Do(ctx, cmd.Blocking()) // it does not block, but blocking commands get a connection of their own
		if isMissing(result) {
			return r.run(ctx, r.client, s, keys, args)
		}
		return result
	})
}

// Read is Call for a script that changes nothing. Its user needs no right to write its keys, which
// Redis requires for Call. The client library repeats it after a broken connection.
func (r *Runner) Read(ctx context.Context, s *Script, keys, args []string) rueidis.RedisResult {
	return r.timed(ctx, s.name, func(ctx context.Context) rueidis.RedisResult {
		source, n := s.of(r.cfg.Layout.Sharded), int64(len(keys))
		result := r.client.Do(ctx, r.client.B().EvalshaRo().Sha1(source.sha).Numkeys(n).Key(keys...).Arg(args...).Build())
		if isMissing(result) {
			result = r.client.Do(ctx, r.client.B().EvalRo().Script(source.text).Numkeys(n).Key(keys...).Arg(args...).Build())
		}
		return result
	})
}

func (r *Runner) callOn(ctx context.Context, on rueidis.Client, s *Script, keys, args []string) rueidis.RedisResult {
	return r.timed(ctx, s.name, func(ctx context.Context) rueidis.RedisResult { return r.run(ctx, on, s, keys, args) })
}

// Do runs one plain command. label names it in metrics.
func (r *Runner) Do(ctx context.Context, label string, cmd rueidis.Completed) rueidis.RedisResult {
	return r.doOn(ctx, r.client, label, cmd)
}

func (r *Runner) doOn(ctx context.Context, on rueidis.Client, label string, cmd rueidis.Completed) rueidis.RedisResult {
	return r.timed(ctx, label, func(ctx context.Context) rueidis.RedisResult { return on.Do(ctx, cmd) })
}

// timed makes a call, with the default deadline if ctx has none, and counts it.
func (r *Runner) timed(
	ctx context.Context, label string, call func(ctx context.Context) rueidis.RedisResult,
) rueidis.RedisResult {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.CallTimeout)
		defer cancel()
	}
	r.metrics.inFlight.Inc()
	defer r.metrics.inFlight.Dec()
	begin := time.Now()
	result := call(ctx)
	r.metrics.observe(label, begin, result.Error())
	return result
}
