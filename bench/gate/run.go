package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/system"
)

// The modes, by the names that the table has.
const (
	overWebSocket = "over WebSocket"
	inProcess     = "in process"
)

// The load is a closed loop of batches.
const (
	inFlight = 1024
	batch    = 64
	// heat is the load on a fresh system before the processor times are read; settle comes after
	// that and before the window, while all callers begin.
	heat   = time.Second
	settle = 200 * time.Millisecond
)

// figure is one result of a run: jobs a second (at place jobsAt), the processor time of a job (at
// place cpuAt), and the part that each process has in that.
type figure struct {
	name  string
	value float64
}

const (
	jobsAt = iota
	cpuAt
)

// shown are the processes of a mode, by their names in system.System.CPU and in the table.
var shown = map[string][][2]string{
	overWebSocket: {{"replicas", "replica"}, {"load", "client"}, {"workers", "agents"}, {"redis", "redis-server"}},
	inProcess:     {{"load", "replica and submitter"}, {"workers", "agents"}, {"redis", "redis-server"}},
}

// measure does one run on a fresh system.
func (s *side) measure(ctx context.Context, mode string, o options) (out []figure, err error) {
	shape := system.Shape{
		Program: system.Freeslot, AOF: system.AOFOff, Worker: fmt.Sprintf("-nodes %d -slots %d", o.nodes, o.slots),
	}
	if mode == overWebSocket {
		shape.Schedulers, shape.Load = 1, "-sessions 4"
	}
	y, err := system.Start(ctx, &s.programs, shape)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, y.Stop()) }()
	r := load.Request{Loop: load.Closed, InFlight: inFlight, Batch: batch, MeasureMS: heat.Milliseconds()}
	if _, err := y.Ask(ctx, r); err != nil {
		return nil, err
	}
	before, err := y.CPU()
	if err != nil {
		return nil, err
	}
	r.WarmUpMS, r.MeasureMS = settle.Milliseconds(), o.window.Milliseconds()
	answer, err := y.Ask(ctx, r)
	if err != nil {
		return nil, err
	}
	after, err := y.CPU()
	if err != nil {
		return nil, err
	}
	if err := usable(answer); err != nil {
		return nil, err
	}
	out = []figure{{"jobs/s", answer.JobsPerSecond}, {"CPU us a job", 0}}
	for _, name := range shown[mode] {
		us := (after[name[0]] - before[name[0]]) * 1e6 / float64(answer.Ended)
		out[cpuAt].value += us
		out = append(out, figure{"  " + name[1], us})
	}
	return out, nil
}

// usable refuses a run in which jobs failed or none ended.
func usable(f *load.Figures) error {
	switch {
	case f.Failures() > 0:
		return fmt.Errorf("jobs failed: %v", f.Failed)
	case f.Jobs == 0 || f.Ended == 0:
		return errors.New("no job ended in the window")
	}
	return nil
}
