package redistest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

const (
	// BinaryEnv is the environment variable that names the redis-server to test with.
	BinaryEnv = "FREESLOT_TEST_REDIS_SERVER"

	startLimit = 2 * time.Minute
	stopLimit  = 5 * time.Second
)

// Option changes how a server of New is started.
type Option func(*redisserver.Config)

// AppendOnly keeps the data over Kill and Restart; fsync is always, everysec or no.
func AppendOnly(fsync string) Option {
	return func(c *redisserver.Config) { c.AppendOnly, c.AppendFsync = true, fsync }
}

// Args adds arguments of redis-server: Args("--maxmemory", "32mb").
func Args(args ...string) Option {
	return func(c *redisserver.Config) { c.ExtraArgs = append(c.ExtraArgs, args...) }
}

// Server is one test's own server. An error fails the test. Its methods may be called from any
// goroutine of the test.
type Server struct {
	*Target
	tb   testing.TB
	proc *redisserver.Server
}

// New starts a server that is stopped, if it still runs, at the end of the test.
func New(tb testing.TB, options ...Option) *Server {
	tb.Helper()
	proc, err := startServer(options...)
	if err != nil {
		tb.Fatal(explain(err))
	}
	s := &Server{Target: own("single", false, proc.Addr()), tb: tb, proc: proc}
	tb.Cleanup(s.Stop)
	return s
}

// Process returns the server's process, for operations without a method here.
func (s *Server) Process() *redisserver.Server { return s.proc }

// Kill ends the server as a crash does, and returns when it is gone.
func (s *Server) Kill() { s.check("kill", s.proc.Kill()) }

// Pause freezes the server: it accepts connections and answers nothing until Resume.
func (s *Server) Pause() { s.check("pause", s.proc.Pause()) }

// Resume ends a Pause.
func (s *Server) Resume() { s.check("resume", s.proc.Resume()) }

// Restart stops the server if it runs, and starts it at the same address. Without AppendOnly it is
// empty.
func (s *Server) Restart() {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	s.check("restart", errors.Join(s.proc.Restart(ctx), loadScripts(ctx, s.proc)))
}

// Stop ends the server in good order; it can be called more than once. A later Restart does not
// have the same data.
func (s *Server) Stop() { s.check("stop", stopServer(s.proc)) }

// check reports with Error, because Fatal is for the test's own goroutine only.
func (s *Server) check(operation string, err error) {
	if err != nil {
		s.tb.Errorf("%s redis-server: %v", operation, err)
	}
}

func startServer(options ...Option) (*redisserver.Server, error) {
	cfg := redisserver.Config{Binary: os.Getenv(BinaryEnv)}
	for _, o := range options {
		o(&cfg)
	}
	cfg.ExtraArgs = append(cfg.ExtraArgs, userArgs(cfg.ExtraArgs)...)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	proc := redisserver.New(cfg)
	if err := proc.Start(ctx); err != nil {
		return proc, err
	}
	return proc, loadScripts(ctx, proc)
}

func stopServer(proc *redisserver.Server) error {
	denied := checkDenied(proc)
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return errors.Join(denied, proc.Stop(ctx))
}

// explain adds the command that a developer of this repository has to run.
func explain(err error) string {
	if errors.Is(err, redisserver.ErrNotFound) {
		return "these tests need a redis-server; install it with `make deps`, or name one in " + BinaryEnv + ": " +
			err.Error()
	}
	return "start redis-server: " + err.Error()
}
