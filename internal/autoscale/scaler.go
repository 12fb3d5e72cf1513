package autoscale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/script"
)

const (
	// interval is the time between two looks at a pool. It varies by an eighth.
	interval    = 5 * time.Second
	callTimeout = time.Second
	// outputBytes is the size of the end of the output that is logged.
	outputBytes = 4 << 10
)

// What the audit has of a run.
const (
	role          identity.Role = "autoscale"
	outcomeFailed string        = "failed"
)

// Config configures a scaler. All fields but Audit are needed.
type Config struct {
	// Argv is the program and its arguments. {pool} and {nodes} in them stand for the pool and the
	// number of nodes that it should have.
	Argv []string
	// Env is the environment of the program.
	Env []string
	// Pools lists the pools whose nodes the program starts and stops.
	Pools []string
	// MaxNodes bounds the nodes of each pool.
	MaxNodes int
	// Cooldown is the least time between two runs for a pool, at all replicas together. Timeout bounds
	// a run, and is shorter.
	Cooldown, Timeout time.Duration
	Replica           string
	// Demand returns the last picture.
	Demand func() *demand.DemandList
	// Audit records runs; nil for none.
	Audit *audit.Log
	Log   *zap.Logger
}

// Scaler runs the command until Stop.
type Scaler struct {
	cfg    Config
	runner *script.Runner
	outage *logging.Outage

	start, stop sync.Once
	ctx         context.Context
	cancel      context.CancelFunc
	pools       sync.WaitGroup
}

// New makes a scaler with its keys in the first cell of a system. It does no I/O.
func New(cfg Config, first *script.Runner) *Scaler {
	s := &Scaler{
		cfg: cfg, runner: first,
		outage: logging.NewOutage(cfg.Log, "autoscale.no_turn", "autoscale.turn_again"),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start begins to follow the pools. It does not wait.
func (s *Scaler) Start(context.Context) error {
	s.start.Do(func() {
		for _, pool := range s.cfg.Pools {
			s.pools.Go(func() { s.follow(pool) })
		}
	})
	return nil
}

// Stop ends a command that runs, and waits until none does, or ctx ends.
func (s *Scaler) Stop(ctx context.Context) error {
	s.start.Do(func() {})
	s.stop.Do(s.cancel)
	return ending.Await(ctx, "autoscale.exec runs", s.pools.Wait)
}

func (s *Scaler) keys(pool string) keys { return keysOf(s.runner.Layout(), pool) }

func (s *Scaler) follow(pool string) {
	for {
		pause := time.NewTimer(interval*7/8 + rand.N(interval/4))
		select {
		case <-pause.C:
			s.look(pool)
		case <-s.ctx.Done():
			pause.Stop()
			return
		}
	}
}

// look runs the command if the pool should have another number of nodes, and it is this replica's
// turn.
func (s *Scaler) look(pool string) {
	nodes, present, known := s.wanted(pool)
	if !known {
		return
	}
	mine, err := s.turn(pool, nodes, present)
	switch {
	case err == nil:
		s.outage.Over()
	case s.ctx.Err() == nil:
		s.outage.Failed(err)
	}
	if mine {
		s.run(pool, nodes, present)
	}
}

// wanted returns how many nodes the pool should have: what is proposed, up to the configured bound,
// but never fewer than run jobs now. present is how many may get jobs.
func (s *Scaler) wanted(pool string) (nodes, present int, known bool) {
	list := s.cfg.Demand()
	for i := range list.Pools {
		if p := &list.Pools[i]; p.Pool == pool && p.NodesWanted != nil {
			return max(min(*p.NodesWanted, s.cfg.MaxNodes), p.BusyNodes), p.Nodes, true
		}
	}
	return 0, 0, false
}

// turn reports whether there is something to do, and this replica is the one to do it.
func (s *Scaler) turn(pool string, nodes, present int) (bool, error) {
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	last, err := s.runner.Do(ctx, "autoscale", s.runner.B().Get().Key(s.keys(pool).last).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return false, fmt.Errorf("read the number of nodes in the last run: %w", err)
	}
	if nodes == present && last == strconv.Itoa(nodes) {
		return false, nil
	}
	set := s.runner.B().Set().Key(s.keys(pool).turn).Value(s.cfg.Replica).Nx().Px(s.cfg.Cooldown).Build()
	err = s.runner.Do(ctx, "autoscale", set).Error()
	switch {
	case rueidis.IsRedisNil(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("take the turn: %w", err)
	}
	return true, nil
}

// run runs the command, and notes the number of nodes if it succeeded. A command that failed runs
// again after the cool-down.
func (s *Scaler) run(pool string, nodes, present int) {
	var change *audit.Change
	if s.cfg.Audit != nil {
		who := &identity.Principal{Name: "autoscale/" + pool, Role: role}
		var err error
		change, err = s.cfg.Audit.Begin(s.ctx, who, "autoscale", pool, "", "")
		if err != nil {
			return // the log has it
		}
		change.Note(fmt.Sprintf("%d nodes", present), fmt.Sprintf("%d nodes", nodes))
	}
	begin := time.Now()
	output, err := s.execute(pool, nodes)
	fields := []zap.Field{
		zap.String("pool", pool), zap.Int("nodes", nodes), zap.Int("present", present),
		zap.Duration("took", time.Since(begin)),
	}
	if err != nil {
		s.cfg.Log.Error("autoscale.failed", append(fields, zap.Error(err), zap.String("output", output))...)
		change.End(s.ctx, outcomeFailed)
		return
	}
	s.cfg.Log.Info("autoscale.ran", fields...)
	change.End(s.ctx, audit.OutcomeDone)
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	note := s.runner.B().Set().Key(s.keys(pool).last).Value(strconv.Itoa(nodes)).Build()
	if err := s.runner.Do(ctx, "autoscale", note).Error(); err != nil && s.ctx.Err() == nil {
		s.outage.Failed(err) // so the command runs once more after the cool-down
	}
}

// execute runs the command. output is the end of its output.
func (s *Scaler) execute(pool string, nodes int) (output string, _ error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Timeout)
	defer cancel()
	fill := strings.NewReplacer("{pool}", pool, "{nodes}", strconv.Itoa(nodes))
	argv := make([]string, len(s.cfg.Argv))
	for i, arg := range s.cfg.Argv {
		argv[i] = fill.Replace(arg)
	}
	var end tail
	err := execute(ctx, argv, s.cfg.Env, &end)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("it was ended: %w", ctx.Err())
	}
	return strings.ToValidUTF8(string(end.kept), "\uFFFD"), err
}

// tail keeps the last bytes that were written. The zero value is ready.
type tail struct{ kept []byte }

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(len(p)-outputBytes, 0):]...)
	t.kept = t.kept[max(len(t.kept)-outputBytes, 0):]
	return len(p), nil
}
