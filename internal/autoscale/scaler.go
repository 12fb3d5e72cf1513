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

// Grace is how long a command may go on after SIGTERM.
const Grace = 5 * time.Second

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
	// MinNodes and MaxNodes bound the nodes of each pool.
	MinNodes, MaxNodes int
	// Cooldown is the least time between two runs for a pool, at all replicas together. Timeout bounds
	// a run, and is shorter by at least Grace.
	Cooldown, Timeout time.Duration
	Replica           string
	// Demand returns the last picture.
	Demand func() *demand.DemandList
	// Silent reports whether a registered node is silent.
	Silent func() bool
	// Audit records runs; nil for none.
	Audit *audit.Log
	Log   *zap.Logger
}

// Scaler runs the command until Stop.
type Scaler struct {
	cfg    Config
	runner *script.Runner
	all    []*pool

	start, stop sync.Once
	ctx         context.Context
	cancel      context.CancelFunc
	loops       sync.WaitGroup
}

// pool is a pool that a scaler follows. Its loop alone uses it.
type pool struct {
	*Scaler
	id     string
	keys   keys
	outage *logging.Outage
	// recorded is the run that the audit has last. One with the same number and outcome is left out.
	recorded record
	// untargeted and over are true while what they mean holds, and was logged.
	untargeted, over bool
}

type record struct {
	nodes   int
	outcome string
}

// New makes a scaler with its keys in the first cell of a system. It does no I/O.
func New(cfg Config, first *script.Runner) *Scaler {
	s := &Scaler{cfg: cfg, runner: first}
	for _, id := range cfg.Pools {
		log := cfg.Log.With(zap.String("pool", id))
		s.all = append(s.all, &pool{
			Scaler: s, id: id, keys: keysOf(first.Layout(), id), recorded: record{nodes: unknown},
			outage: logging.NewOutage(log, "autoscale.no_turn", "autoscale.turn_again"),
		})
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start begins to follow the pools. It does not wait.
func (s *Scaler) Start(context.Context) error {
	s.start.Do(func() {
		for _, p := range s.all {
			s.loops.Go(p.follow)
		}
	})
	return nil
}

// Stop ends a command that runs, and waits until none does, or ctx ends.
func (s *Scaler) Stop(ctx context.Context) error {
	s.start.Do(func() {})
	s.stop.Do(s.cancel)
	return ending.Await(ctx, "autoscale.exec runs", s.loops.Wait)
}

func (p *pool) follow() {
	for {
		pause := time.NewTimer(interval*7/8 + rand.N(interval/4))
		select {
		case <-pause.C:
			p.look()
		case <-p.ctx.Done():
			pause.Stop()
			return
		}
	}
}

// look runs the command if the pool should have another number of nodes, and it is this replica's
// turn.
func (p *pool) look() {
	list := p.cfg.Demand()
	for i := range list.Pools {
		if d := &list.Pools[i]; d.Pool == p.id && d.TargetWaitMS > 0 {
			if d.NodesWanted != nil {
				p.follows(d)
			}
			return
		}
	}
	if list.AtMS != 0 && !list.Stale {
		if !p.untargeted {
			p.cfg.Log.Warn("autoscale.no_target", zap.String("pool", p.id))
		}
		p.untargeted = true
	}
}

// follows does what a pool with a proposal needs.
func (p *pool) follows(d *demand.PoolDemand) {
	nodes, do, err := p.turn(d)
	switch {
	case err == nil:
		p.outage.Over()
	case p.ctx.Err() == nil:
		p.outage.Failed(err)
	}
	switch do {
	case refuse:
		if !p.over {
			p.cfg.Log.Warn("autoscale.over_bound", zap.String("pool", p.id), zap.Int("busy", nodes),
				zap.Int("max_nodes", p.cfg.MaxNodes))
		}
	case run:
		p.run(nodes, d.Nodes+d.Draining)
	}
	p.untargeted, p.over = false, do == refuse
}

// turn decides what is to be done. It returns run only if this replica is the one to do it.
func (p *pool) turn(d *demand.PoolDemand) (nodes int, do step, _ error) {
	ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
	defer cancel()
	last, err := p.last(ctx)
	if err != nil {
		return 0, rest, err
	}
	switch nodes, do = p.cfg.decide(d, last, p.cfg.Silent()); do {
	case adopt:
		return nodes, do, p.note(ctx, nodes)
	case run:
		set := p.runner.B().Set().Key(p.keys.turn).Value(p.cfg.Replica).Nx().Px(p.cfg.Cooldown).Build()
		err := p.runner.Do(ctx, "autoscale", set).Error()
		if rueidis.IsRedisNil(err) {
			return nodes, rest, nil
		}
		if err != nil {
			return nodes, rest, fmt.Errorf("take the turn: %w", err)
		}
	}
	return nodes, do, nil
}

func (p *pool) last(ctx context.Context) (int, error) {
	last, err := p.runner.Do(ctx, "autoscale", p.runner.B().Get().Key(p.keys.last).Build()).AsInt64()
	switch {
	case rueidis.IsRedisNil(err):
		return unknown, nil
	case err != nil:
		return 0, fmt.Errorf("read the number of nodes in the last run: %w", err)
	}
	return int(last), nil
}

func (p *pool) note(ctx context.Context, nodes int) error {
	set := p.runner.B().Set().Key(p.keys.last).Value(strconv.Itoa(nodes)).Build()
	if err := p.runner.Do(ctx, "autoscale", set).Error(); err != nil {
		return fmt.Errorf("note the number of nodes: %w", err)
	}
	return nil
}

// run runs the command, and notes the number of nodes if it succeeded. A command that failed runs
// again after the cool-down.
func (p *pool) run(nodes, there int) {
	var change *audit.Change
	if p.recorded.nodes != nodes {
		var err error
		if change, err = p.begin(nodes, there); err != nil {
			return // the log has it
		}
	}
	begin := time.Now()
	output, err := p.execute(nodes)
	fields := []zap.Field{
		zap.String("pool", p.id), zap.Int("nodes", nodes), zap.Int("there", there),
		zap.Duration("took", time.Since(begin)),
	}
	outcome := audit.OutcomeDone
	if err != nil {
		outcome = outcomeFailed
		p.cfg.Log.Error("autoscale.failed", append(fields, zap.Error(err), zap.String("output", output))...)
	} else {
		p.cfg.Log.Info("autoscale.ran", fields...)
	}
	if p.recorded.nodes == nodes && p.recorded.outcome != outcome {
		change, _ = p.begin(nodes, there)
	}
	change.End(p.ctx, outcome)
	p.recorded = record{nodes, outcome}
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
	defer cancel()
	if err := p.note(ctx, nodes); err != nil && p.ctx.Err() == nil {
		p.outage.Failed(err) // so the command runs once more after the cool-down
	}
}

// begin records a run, unless there is no audit.
func (p *pool) begin(nodes, there int) (*audit.Change, error) {
	if p.cfg.Audit == nil {
		return nil, nil
	}
	who := &identity.Principal{Name: "autoscale/" + p.id, Role: role}
	change, err := p.cfg.Audit.Begin(p.ctx, who, "autoscale", p.id, "", "")
	change.Note(fmt.Sprintf("%d nodes", there), fmt.Sprintf("%d nodes", nodes))
	return change, err
}

// execute runs the command. output is the end of its output.
func (p *pool) execute(nodes int) (output string, _ error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Timeout)
	defer cancel()
	fill := strings.NewReplacer("{pool}", p.id, "{nodes}", strconv.Itoa(nodes))
	argv := make([]string, len(p.cfg.Argv))
	for i, arg := range p.cfg.Argv {
		argv[i] = fill.Replace(arg)
	}
	var end tail
	err := execute(ctx, argv, p.cfg.Env, &end)
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
