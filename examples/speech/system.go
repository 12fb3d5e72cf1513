package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/worker"
)

const (
	buildLimit   = 5 * time.Minute
	startLimit   = 30 * time.Second
	stopLimit    = 30 * time.Second
	pollInterval = 20 * time.Millisecond
	pollTimeout  = time.Second
	modulePath   = "github.com/freeslot/freeslot"
)

// system is a Redis, a fleet of nodes and one scheduler, all for this program alone.
type system struct {
	folder  string
	redis   *redisserver.Server
	nodes   []*worker.Worker
	replica *replica
	// url is where the scheduler takes jobs.
	url string
}

// startSystem keeps everything in folder. The nodes come before the scheduler, which is ready when it
// knows all nodes that were there before it.
func startSystem(ctx context.Context, folder, synthesizer string) (_ *system, err error) {
	scratch := filepath.Join(folder, "tmp")
	if err := os.MkdirAll(scratch, 0o750); err != nil {
		return nil, err
	}
	binary, err := buildScheduler(ctx, folder)
	if err != nil {
		return nil, err
	}
	s := &system{folder: folder, redis: redisserver.New(redisserver.Config{Dir: filepath.Join(folder, "redis")})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := s.redis.Start(ctx); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(fleet)) {
		w, err := newWorker(id, s.redis.URL(), synthesizer, scratch)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, w)
		if err := w.Start(ctx); err != nil {
			return nil, fmt.Errorf("start node %s: %w", id, err)
		}
	}
	return s, s.startReplica(ctx, binary)
}

func (s *system) startReplica(ctx context.Context, binary string) error {
	port, err := redisserver.FreePort()
	if err != nil {
		return err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	s.replica, err = startReplica(binary, address, s.redis.URL(), filepath.Join(s.folder, "scheduler.log"))
	if err != nil {
		return err
	}
	s.url = "ws://" + address
	return s.replica.awaitReady(ctx, "http://"+address+"/readyz")
}

// stop ends the scheduler, then the nodes, then Redis.
func (s *system) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	var errs []error
	if s.replica != nil {
		errs = append(errs, s.replica.stop())
	}
	errs = append(errs, s.stopNodes(ctx))
	return errors.Join(append(errs, s.redis.Stop(ctx))...)
}

func (s *system) stopNodes(ctx context.Context) error {
	errs := make([]error, len(s.nodes))
	var stops sync.WaitGroup
	for i, w := range s.nodes {
		stops.Go(func() { errs[i] = w.Stop(ctx) })
	}
	stops.Wait()
	return errors.Join(errs...)
}

// replica is the scheduler process. What it logs goes to a file.
type replica struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
	err  error // set before done is closed
}

func startReplica(binary, address, redisURL, logFile string) (*replica, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "serve")
	for _, e := range os.Environ() {
		// The caller's settings are for another system than this one.
		if !strings.HasPrefix(e, "FREESLOT_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "FREESLOT_LISTEN="+address, "FREESLOT_REDIS__URL="+redisURL, "FREESLOT_REPLICA_ID=speech")
	cmd.Stdout, cmd.Stderr = log, log
	// In a group of its own, so that Ctrl-C reaches this program alone, which stops things in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start scheduler: %w", err), log.Close())
	}
	r := &replica{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = errors.Join(cmd.Wait(), log.Close())
	}()
	return r, nil
}

func (r *replica) awaitReady(ctx context.Context, url string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if answersOK(ctx, url) {
			return nil
		}
		select {
		case <-r.done:
			return fmt.Errorf("the scheduler ended (%w); see %s", r.err, r.log.Name())
		case <-ctx.Done():
			return fmt.Errorf("the scheduler is not ready (%w); see %s", ctx.Err(), r.log.Name())
		case <-tick.C:
		}
	}
}

func answersOK(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	req.Close = true // one answer is all that is wanted
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (r *replica) stop() error {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-r.done:
		if r.err != nil {
			return fmt.Errorf("the scheduler ended badly (%w); see %s", r.err, r.log.Name())
		}
		return nil
	case <-limit.C:
		_ = r.cmd.Process.Kill()
		<-r.done
		return fmt.Errorf("the scheduler did not stop within %s; see %s", stopLimit, r.log.Name())
	}
}

// buildScheduler builds the scheduler that belongs to this tree.
func buildScheduler(ctx context.Context, folder string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	binary, err := filepath.Abs(filepath.Join(folder, "scheduler"))
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, modulePath+"/cmd/scheduler").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the scheduler (run this inside the repository): %w: %s", err, strings.TrimSpace(string(out)))
	}
	return binary, nil
}
