package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	service = "translate"
	// lonely is a service of the first node alone, which is drained.
	lonely = "lonely"
	pools  = 20
	// silence keeps nodes online whose heartbeats are not measured.
	silence         = time.Hour
	registerCallers = 32
	stepLimit       = 30 * time.Second
)

// bed is what the parts share: Redis, a fleet, a replica.
type bed struct {
	nodes   int
	redis   *system.Redis
	replica *system.Scheduler
	fleet   *fleet
}

func openBed(ctx context.Context, b *tool.Bench) *bed {
	d := &bed{nodes: tool.Sized(b, 10_000, 200), redis: tool.Must(system.StartRedis(ctx, system.AOFOff))}
	err := tool.Try(func() {
		d.fleet = openFleet(ctx, d.redis, d.nodes)
		program := b.Program(ctx, "scheduler")
		d.replica = tool.Must(system.StartScheduler(ctx, program, d.redis.URL(), 1, "FREESLOT_HEARTBEAT_LIMIT="+silence.String()))
		d.ask(ctx, "POST", "/v1/nodes/"+nodeID(0)+"/drain", `{}`, nil)
	})
	if err != nil {
		tool.Check(errors.Join(err, d.close()))
	}
	return d
}

// note names the servers, and what else kept the machine busy when the part began.
func (d *bed) note(ctx context.Context, b *tool.Bench) {
	b.NoteServer(ctx, d.redis, system.AOFOff)
	sayLoad(b)
}

// sayLoad adds the machine's load to the method: figures of a busy machine are worse.
func sayLoad(b *tool.Bench) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		b.Say("Load of the machine in the minute before, by /proc/loadavg: %s.", strings.Fields(string(text))[0])
	}
}

func (d *bed) close() (err error) {
	if d.replica != nil {
		err = d.replica.Stop()
	}
	if d.fleet != nil {
		d.fleet.stop()
	}
	return errors.Join(err, d.redis.Stop())
}

func (d *bed) url(path string) string { return "http://" + d.replica.Address + path }

// ask sends a request to the replica, and reads the JSON of its answer into out, unless that is
// nil. It returns how long the whole answer took.
func (d *bed) ask(ctx context.Context, method, path, body string, out any) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	text, took, err := call(ctx, method, d.url(path), body)
	tool.Check(err)
	if out != nil {
		tool.Check(json.Unmarshal(text, out))
	}
	return took
}

// fleet is nodes without processes: the tool speaks for them.
type fleet struct {
	cell   *cell.Cell
	stop   func()
	epochs []cell.Epoch
}

func openFleet(ctx context.Context, redis *system.Redis, nodes int) *fleet {
	cfg := cell.Config{HeartbeatLimit: silence, CallTimeout: measure.CallTimeout}
	c := tool.Must(cell.New(cfg, redis.Client, zap.NewNop(), nil))
	tool.Check(c.Start(ctx))
	f := &fleet{cell: c, epochs: make([]cell.Epoch, nodes), stop: func() {
		ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
		defer cancel()
		_ = c.Stop(ctx) // nothing is under way
	}}
	tool.Together(registerCallers, nodes, func(i int) {
		f.epochs[i] = cell.NewEpoch()
		tool.Must(c.Register(ctx, node(i), f.epochs[i]))
	})
	return f
}

func nodeID(i int) string { return fmt.Sprintf("node-%05d", i) }

func node(i int) freeslot.Node {
	n := freeslot.Node{
		ID: nodeID(i), MaxConcurrency: 8, Services: []freeslot.Service{{Name: service, Version: "2.1.0"}},
		Pools:  []string{"pool-" + strconv.Itoa(i%pools)},
		Labels: map[string]string{"zone": fmt.Sprintf("eu-%d", i%3), "gpu": []string{"T4", "A10", "A100", "H100"}[i/pools%4]},
	}
	if i == 0 {
		n.Services = []freeslot.Service{{Name: lonely, Version: "1.0.0"}}
	}
	return n
}

// beat sends heartbeats with new figures of node after node, rate a second, until ctx ends.
func (f *fleet) beat(ctx context.Context, rate int) error {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return err
	}
	defer pace.Close()
	begin := time.Now()
	for i := 0; ; i++ {
		if pace.Wait(ctx, begin.Add(time.Duration(i)*time.Second/time.Duration(rate))) != nil {
			return nil
		}
		at := i % len(f.epochs)
		figures := fmt.Sprintf(`{"at_ms":%d,"cpu_usage":%.3f,"memory_usage":%.3f,"gpu_usage":%.3f}`,
			time.Now().UnixMilli(), rand.Float64(), rand.Float64(), rand.Float64())
		h := cell.Heartbeat{Node: nodeID(at), Epoch: f.epochs[at], Resources: []byte(figures)}
		if _, err := f.cell.Heartbeat(context.WithoutCancel(ctx), h); err != nil {
			return err
		}
	}
}

// beating has heartbeats come while do runs.
func (f *fleet) beating(ctx context.Context, rate int, do func()) {
	life, end := context.WithCancel(ctx)
	beaten := make(chan error, 1)
	go func() { beaten <- f.beat(life, rate) }()
	defer tool.End(func() error { end(); return <-beaten })
	do()
}
