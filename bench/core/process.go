package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

const (
	readyPoll    = time.Millisecond
	readyTimeout = 250 * time.Millisecond
)

// scheduler is a replica as a process of its own: the product's program.
type scheduler struct {
	*measure.Process
	address string
	began   time.Time
}

// startScheduler runs the program against Redis and returns at once.
func startScheduler(program, redisURL string) (*scheduler, error) {
	port, err := redisserver.FreePort()
	if err != nil {
		return nil, err
	}
	s := &scheduler{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	cmd := exec.Command(program, "serve")
	cmd.Env = measure.PlainEnv("FREESLOT_LISTEN="+s.address, "FREESLOT_REDIS__URL="+redisURL, "FREESLOT_LOG__LEVEL=warn")
	s.began = time.Now()
	s.Process, err = measure.StartProcess("scheduler", cmd)
	return s, err
}

// ready polls /readyz until it is ok, and returns how long after the start that was.
func (s *scheduler) ready(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: readyTimeout}
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/readyz", http.NoBody)
		if err != nil {
			return 0, err
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return time.Since(s.began), nil
			}
		}
		select {
		case <-s.Done:
			return 0, s.Exited()
		case <-ctx.Done():
			return 0, fmt.Errorf("scheduler is not ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// resident is the process' resident memory in MiB.
func (s *scheduler) resident() (float64, error) { return residentOf(s.Cmd.Process.Pid) }

// residentOf is a process' resident memory in MiB, from /proc.
func residentOf(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("/proc has no VmRSS")
}

// fleetServer is a Redis with n registered nodes; the epochs are theirs.
func (b *bench) fleetServer(ctx context.Context, n int) (s *server, c *cell.Cell, epochs []cell.Epoch, err error) {
	if s, err = b.startRedis(ctx, noAOF); err != nil {
		return nil, nil, nil, err
	}
	epochs = make([]cell.Epoch, n)
	if c, err = newCell(ctx, s.client); err == nil {
		err = registerFleet(ctx, c, n, epochs)
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, s.stop())
	}
	return s, c, epochs, nil
}

func runColdStart(ctx context.Context, b *bench) (err error) {
	program, err := measure.BuildScheduler(ctx, b.root, b.folder)
	if err != nil {
		return err
	}
	nodes, rounds := sized(b, 10_000, 500), sized(b, 15, 1)
	b.say("The scheduler program, started again and again against a Redis with that many registered nodes: from the start of its process to the first 200 of /readyz, asked every %s. %d turns.", readyPoll, rounds)
	sizes := []int{0, nodes}
	took := make([][]float64, len(sizes))
	servers := make([]*server, len(sizes))
	for i, n := range sizes {
		s, c, _, err := b.fleetServer(ctx, n)
		if err != nil {
			return err
		}
		stopCell(c)
		servers[i] = s
		defer func() { err = errors.Join(err, s.stop()) }()
	}
	for range rounds {
		for i := range sizes {
			ms, err := coldStart(ctx, program, servers[i].URL())
			if err != nil {
				return err
			}
			took[i] = append(took[i], ms)
		}
	}
	t := result.Table{First: "Nodes", Columns: []result.Column{{Name: "median", Unit: result.Milliseconds}, {Name: "slowest", Unit: result.Milliseconds}}}
	for i, n := range sizes {
		t.Rows = append(t.Rows, result.Row{Name: measure.Thousands(float64(n)), Values: result.Values(rounded(median(took[i])), rounded(quantile(took[i], 1)))})
	}
	b.result.Tables = []result.Table{t}
	b.target(fmt.Sprintf("cold start with %s nodes, median", measure.Thousands(float64(nodes))), result.Milliseconds, result.AtMost, 300, median(took[1]))
	return nil
}

func coldStart(ctx context.Context, program, url string) (ms float64, err error) {
	s, err := startScheduler(program, url)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	took, err := s.ready(ctx)
	return took.Seconds() * 1000, err
}
