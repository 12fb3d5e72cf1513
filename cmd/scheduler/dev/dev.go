package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/worker"
)

const (
	startTimeout = 20 * time.Second
	batchTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
	nodePoll     = 10 * time.Millisecond
)

// ErrJobsFailed is returned by Run when Exit is set and a job of the batch did not succeed.
var ErrJobsFailed = errors.New("not every job succeeded")

// Replica is a scheduler replica that Run starts on the store.
type Replica interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	// Submit places a job of the tenant, for whose result no one waits.
	Submit(ctx context.Context, tenant string, job *freeslot.Job) error
	// Addr returns the address on which a started replica listens.
	Addr() string
	// Done returns a channel that is closed when a started replica no longer serves; Err then
	// returns the reason.
	Done() <-chan struct{}
	Err() error
}

// Config describes a dev system. Every field is required unless its zero value has a meaning.
type Config struct {
	// Dir holds the data; it is made if it is missing.
	Dir string
	// Listen is the replica's address, host:port; port 0 takes any free one.
	Listen string
	// RedisPort is the port of the Redis that Run starts; 0 takes any free one.
	RedisPort int
	// Embedded uses the stand-in, a program beside this one, even if a redis-server is installed.
	Embedded bool
	// Exit ends the system after the batch.
	Exit bool
	// Load is how many jobs of the demo load are submitted a second after the first batch, 0 to
	// MaxLoad. 0 means none, and none of the load's schedule, lock, lookups and service either.
	Load float64
	// NewReplica makes the replica, which admits nodes with the tokens of the file. The replica is
	// started once Redis runs.
	NewReplica func(redisURL, tokensFile string, log *zap.Logger) (Replica, error)
	Logger     *zap.Logger
	Out        io.Writer
}

// Run starts the system, runs the batch, and serves until ctx ends, or until the batch is done if
// Exit is set. Everything has stopped when it returns.
func Run(ctx context.Context, cfg Config) (err error) {
	s := &system{cfg: cfg}
	defer func() {
		// A context of its own, because ctx may have ended.
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, s.stop(stopCtx))
	}()
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.start(startCtx); err != nil {
		if ctx.Err() != nil {
			return nil // interrupted on the way up
		}
		return err
	}
	running, stopWatching := s.watch(ctx)
	defer stopWatching()
	if !cfg.Exit {
		s.say("console: http://%s/console/", s.replica.Addr())
		s.say("")
	}
	s.seedList(running)
	failed, err := s.batch(running)
	if err == nil && running.Err() == nil {
		s.startLoad(running)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case running.Err() != nil:
		return context.Cause(running)
	case err != nil:
		return err
	case cfg.Exit && failed > 0:
		return fmt.Errorf("%w: %d of them", ErrJobsFailed, failed)
	case cfg.Exit:
		return nil
	}
	s.greet()
	<-running.Done()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(running)
}

// system holds the running parts; stops run in reverse order.
type system struct {
	cfg     Config
	redis   *store
	replica Replica
	stops   []func(context.Context) error
}

// watch returns a context that ends with ctx, or when a part ends by itself; that is then its
// cause. stop ends the watching. It must be called before the parts are stopped.
func (s *system) watch(ctx context.Context) (running context.Context, stop func()) {
	running, end := context.WithCancelCause(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-running.Done():
		case <-s.redis.failed:
			end(endedByItself("redis-server", s.redis.err()))
		case <-s.replica.Done():
			end(endedByItself("the replica", s.replica.Err()))
		}
	})
	return running, func() { end(nil); watcher.Wait() }
}

func endedByItself(part string, why error) error {
	if why == nil {
		return fmt.Errorf("%s ended by itself", part)
	}
	return fmt.Errorf("%s ended by itself: %w", part, why)
}

func (s *system) start(ctx context.Context) error {
	if err := checkDir(s.cfg.Dir); err != nil {
		return err
	}
	if err := checkListen(s.cfg.Listen); err != nil {
		return err
	}
	var err error
	if s.redis, err = startRedis(ctx, s.cfg.Dir, s.cfg.RedisPort, s.cfg.Embedded, s.cfg.Logger); err != nil {
		return err
	}
	s.stops = append(s.stops, s.redis.stop)
	log := s.cfg.Logger
	if s.redis.lacks != "" {
		s.say("warning: %s", s.redis.lacks)
		// Once is enough: the start-up checks do not apply to the stand-in.
		log = log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	}
	token, tokensFile, err := writeToken(s.cfg.Dir)
	if err != nil {
		return err
	}
	replica, err := s.cfg.NewReplica(s.redis.url, tokensFile, log)
	if err != nil {
		return err
	}
	if err := replica.Start(ctx); err != nil {
		return err
	}
	s.replica = replica
	s.stops = append(s.stops, replica.Stop)
	running, stopWatching := s.watch(ctx)
	defer stopWatching()
	err = s.startNodes(running, token, log)
	if err != nil && ctx.Err() == nil && running.Err() != nil {
		return context.Cause(running)
	}
	return err
}

func (s *system) startNodes(ctx context.Context, token string, log *zap.Logger) error {
	for _, profile := range profiles() {
		cfg := worker.Config{RedisURL: s.redis.url, Node: profile, Logger: log}
		if profile.ID == gatewayNode {
			cfg.RedisURL, cfg.Gateway, cfg.Token = "", "ws://"+s.replica.Addr(), token
		}
		w, err := worker.New(cfg)
		if err != nil {
			return err
		}
		for _, service := range profile.Services {
			w.Handle(service.Name, handlers[service.Name])
		}
		if err := w.Start(ctx); err != nil {
			return fmt.Errorf("start %s: %w", profile.ID, err)
		}
		s.stops = append(s.stops, w.Stop)
	}
	return s.awaitNodes(ctx)
}

func (s *system) stop(ctx context.Context) error {
	var errs []error
	for _, stop := range slices.Backward(s.stops) {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}

// awaitNodes waits until the replica knows all nodes.
func (s *system) awaitNodes(ctx context.Context) error {
	ticker := time.NewTicker(nodePoll)
	defer ticker.Stop()
	for {
		n, err := s.nodes(ctx)
		if err == nil && n >= len(profiles()) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf(
				"the replica knows %d of %d nodes (last error: %w)", n, len(profiles()), errors.Join(err, ctx.Err()),
			)
		}
	}
}

func (s *system) nodes(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.replica.Addr()+"/v1/nodes", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct {
		Nodes []json.RawMessage `json:"nodes"`
	}
	err = json.NewDecoder(resp.Body).Decode(&body)
	return len(body.Nodes), err
}

func (s *system) batch(ctx context.Context) (failed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	c, err := client.Dial(ctx, "ws://"+s.replica.Addr(), client.Options{Logger: s.cfg.Logger})
	if err != nil {
		return 0, fmt.Errorf("connect to the replica: %w", err)
	}
	defer func() { _ = c.Close() }()
	return printTable(s.cfg.Out, runBatch(ctx, c, firstBatch()))
}

func (s *system) greet() {
	addr := s.replica.Addr()
	s.say("")
	s.say("serving until Ctrl-C")
	s.say("  WebSocket  ws://%s/v1/ws", addr)
	s.say("  HTTP       http://%s/v1/jobs  (OpenAPI: http://%s/openapi.json)", addr, addr)
	s.say("  Redis      %s", s.redis.url)
	s.say("submit a job:")
	s.say(`  bin/schedctl --server http://%s submit upper '"hello"' --wait`, addr)
	if s.redis.lacks == "" {
		s.say("ask the list:")
		s.say("  bin/schedctl --server http://%s lists query %s user-1 nobody", addr, listName)
	}
}

func (s *system) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.cfg.Out, format+"\n", args...)
}

// checkDir makes the data folder and proves that it can be written to.
func checkDir(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		probe := filepath.Join(dir, ".probe")
		if err = os.WriteFile(probe, nil, 0o600); err == nil {
			return os.Remove(probe)
		}
	}
	return fmt.Errorf("cannot write to the data folder %s: %w: choose another with --dir", dir, err)
}

// checkListen finds a taken port before anything is started.
func checkListen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf(
			"cannot listen on %s: %w: stop what listens there, or choose another address with --listen", addr, err,
		)
	}
	return l.Close()
}
