package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// The modes, by the names that the table has.
const (
	overWebSocket = "over WebSocket"
	inProcess     = "in process"
)

// The load is a closed loop of batches.
const (
	sessions = 4
	inFlight = 1024
	batch    = 64
	// heat is the load on a fresh system before the processor times are read; settle comes after that and before the
	// window, while all callers begin.
	heat        = time.Second
	settle      = 200 * time.Millisecond
	answerLimit = 2 * time.Minute
)

// figure is one of what a run came to: jobs a second (at place jobsAt), the processor time of a job (at place cpuAt), and
// what each process has of that.
type figure struct {
	name  string
	value float64
}

const (
	jobsAt = iota
	cpuAt
)

// system is one side's processes with a Redis of their own.
type system struct {
	processes []process
	load      *measure.Child
	stops     []func() error
}

type process struct {
	name string
	pid  int
}

// measure does one run on a fresh system.
func (s *side) measure(ctx context.Context, mode string, o options) (out []figure, err error) {
	y := new(system)
	defer func() { err = errors.Join(err, y.stop()) }()
	if err := y.start(ctx, s, mode, o); err != nil {
		return nil, err
	}
	r := load.Request{Loop: load.Closed, InFlight: inFlight, Batch: batch, MeasureMS: heat.Milliseconds()}
	if _, err := y.ask(ctx, r); err != nil {
		return nil, err
	}
	before, err := y.cpuSeconds()
	if err != nil {
		return nil, err
	}
	r.WarmUpMS, r.MeasureMS = settle.Milliseconds(), o.window.Milliseconds()
	answer, err := y.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	after, err := y.cpuSeconds()
	if err != nil {
		return nil, err
	}
	out = []figure{{"jobs/s", answer.JobsPerSecond}, {"CPU us a job", 0}}
	for i, p := range y.processes {
		us := (after[i] - before[i]) * 1e6 / float64(answer.Ended)
		out[cpuAt].value += us
		out = append(out, figure{"  " + p.name, us})
	}
	return out, nil
}

// start starts the agents before the replica: a replica that is ready knows every node that was there.
func (y *system) start(ctx context.Context, s *side, mode string, o options) error {
	ctx, cancel := context.WithTimeout(ctx, 2*measure.StartLimit)
	defer cancel()
	redis := redisserver.New(redisserver.Config{})
	if err := redis.Start(ctx); err != nil {
		return err
	}
	y.stops = append(y.stops, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
		defer cancel()
		return redis.Stop(ctx)
	})
	agents, err := y.child(ctx, s, "worker", "-redis", redis.URL(), "-nodes", strconv.Itoa(o.nodes), "-slots", strconv.Itoa(o.slots))
	if err != nil {
		return err
	}
	submitter, args := "replica and submitter", []string{"load", "-redis", redis.URL()}
	if mode == overWebSocket {
		url, err := y.replica(ctx, s, redis.URL())
		if err != nil {
			return err
		}
		submitter, args = "client", append(args, "-ws", url, "-sessions", strconv.Itoa(sessions))
	}
	if y.load, err = y.child(ctx, s, args...); err != nil {
		return err
	}
	y.processes = append(y.processes, process{submitter, y.load.PID()}, process{"agents", agents.PID()}, process{"redis-server", redis.PID()})
	return nil
}

// child starts the side's load program in one of its roles.
func (y *system) child(ctx context.Context, s *side, args ...string) (*measure.Child, error) {
	cmd := exec.Command(s.load, args...)
	cmd.Env = measure.PlainEnv()
	c, err := measure.StartChild(ctx, args[0], cmd, load.Ready)
	if err != nil {
		return nil, err
	}
	y.stops = append(y.stops, c.End)
	return c, nil
}

// replica starts the side's scheduler and returns where it takes sessions.
func (y *system) replica(ctx context.Context, s *side, redisURL string) (string, error) {
	port, err := redisserver.FreePort()
	if err != nil {
		return "", err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cmd := exec.Command(s.scheduler, "serve")
	cmd.Env = measure.PlainEnv("FREESLOT_LISTEN="+address, "FREESLOT_REPLICA_ID=bench-1", "FREESLOT_REDIS__URL="+redisURL, "FREESLOT_LOG__LEVEL=warn")
	p, err := measure.StartProcess("replica", cmd)
	if err != nil {
		return "", err
	}
	y.stops = append(y.stops, p.Stop)
	y.processes = append(y.processes, process{"replica", p.Cmd.Process.Pid})
	return "ws://" + address, p.AwaitOK(ctx, "http://"+address+"/readyz")
}

// stop ends what was started, Redis last.
func (y *system) stop() error {
	var errs []error
	for i := len(y.stops) - 1; i >= 0; i-- {
		errs = append(errs, y.stops[i]())
	}
	return errors.Join(errs...)
}

// ask has the load program do one window. A job that failed fails the run.
func (y *system) ask(ctx context.Context, r load.Request) (*load.Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.WarmUpMS+r.MeasureMS)*time.Millisecond+answerLimit)
	defer cancel()
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	answer, err := y.load.Ask(ctx, string(line))
	if err != nil {
		return nil, err
	}
	return parseFigures(answer)
}

// parseFigures lets fields pass that it does not know: another commit's program may have more.
func parseFigures(line string) (*load.Figures, error) {
	f := new(load.Figures)
	if err := json.Unmarshal([]byte(line), f); err != nil {
		return nil, fmt.Errorf("the load program answered %q: %w", line, err)
	}
	switch {
	case f.Error != "":
		return nil, errors.New(f.Error)
	case f.Failures() > 0:
		return nil, fmt.Errorf("jobs failed: %v", f.Failed)
	case f.Jobs == 0 || f.Ended == 0:
		return nil, errors.New("no job ended in the window")
	}
	return f, nil
}

// cpuSeconds is the processor time of each process.
func (y *system) cpuSeconds() ([]float64, error) {
	out := make([]float64, len(y.processes))
	var errs []error
	for i, p := range y.processes {
		var err error
		out[i], err = measure.CPUSeconds(p.pid)
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}
