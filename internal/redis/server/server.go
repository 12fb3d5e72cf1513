package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

var (
	// ErrNotFound is returned when the server's binary is not installed; the message has the
	// command that installs it.
	ErrNotFound = errors.New("redis-server not found")
	// ErrPortTaken is returned when something else listens on the port.
	ErrPortTaken = errors.New("port taken")
	// ErrDir is returned when the data folder cannot be made, written to or locked.
	ErrDir = errors.New("data folder not usable")
	// ErrRunning is returned by Start when the server runs already.
	ErrRunning = errors.New("redis-server runs already")
	// ErrNotRunning is returned by Kill, Pause and Resume when no server runs.
	ErrNotRunning = errors.New("redis-server does not run")
	// ErrExited is returned when the server ended by itself.
	ErrExited = errors.New("redis-server exited")
)

// startTries bounds the ports that Start tries when it chooses one and another process takes it
// first.
const startTries = 5

// Server is one redis-server. All methods are safe for concurrent use. Start, Stop, Kill and
// Restart run one after the other.
type Server struct {
	cfg Config

	life sync.Mutex // held over a whole Start, Stop, Kill or Restart

	mu     sync.Mutex // guards the fields below; never held while waiting
	port   int        // 0 until the first Start
	folder *folder    // nil if stopped
	proc   *process   // the last run; nil before the first
}

// New returns a server that is not started.
func New(cfg Config) *Server {
	return &Server{cfg: cfg.WithDefaults(), port: cfg.Port}
}

// Start launches the server and returns when it answers PING. ctx bounds the start-up alone;
// without a deadline a server may load a large file for any time. After an error nothing runs. The
// causes are ErrNotFound, ErrPortTaken, ErrDir, ErrRunning and ErrExited.
func (s *Server) Start(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	return s.start(ctx)
}

// Stop ends the server: SIGTERM, and SIGKILL after Config.StopGrace or when ctx ends. It returns
// when the process is gone and its temporary folder removed. It may be called twice and before
// Start.
func (s *Server) Stop(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	return errors.Join(s.terminate(ctx), s.closeFolder())
}

// Restart stops the server, if it runs, and starts it again on the same port and folder.
func (s *Server) Restart(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	if err := s.terminate(ctx); err != nil {
		return err
	}
	return s.start(ctx)
}

// Kill sends SIGKILL, as a crash would, and returns when the process is gone. Done is closed and
// Err is set. The folder is kept for a Start or Restart.
func (s *Server) Kill() error {
	s.life.Lock()
	defer s.life.Unlock()
	p, err := s.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.done
	return nil
}

// Pause freezes the server (SIGSTOP) and returns when it has stopped: the kernel accepts
// connections, and nothing is answered.
func (s *Server) Pause() error {
	p, err := s.signal(syscall.SIGSTOP)
	if err != nil {
		return err
	}
	return awaitStopped(p.pid)
}

// Resume ends a Pause (SIGCONT). It may be called without one.
func (s *Server) Resume() error {
	_, err := s.signal(syscall.SIGCONT)
	return err
}

// Addr returns host:port; empty before the first Start if the port is to be picked.
func (s *Server) Addr() string {
	if port := s.Port(); port != 0 {
		return loopback(port)
	}
	return ""
}

// URL returns the address in the form for clients, redis://127.0.0.1:port; empty if Addr is.
func (s *Server) URL() string {
	if addr := s.Addr(); addr != "" {
		return "redis://" + addr
	}
	return ""
}

// Port returns the TCP port; 0 before the first Start if it is to be picked.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// PID returns the process id of the running server, or 0.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return 0
	}
	return s.proc.pid
}

// Dir returns the data folder; empty if the server is stopped.
func (s *Server) Dir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder == nil {
		return ""
	}
	return s.folder.path
}

// Done returns a channel that is closed when the server that was started last has ended for any
// reason. Before the first Start the channel is nil: it blocks for ever.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	return s.proc.done
}

// Err returns nil while the server runs, after Stop, and before Start; otherwise it returns why the
// server ended (ErrExited).
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.asked || !s.proc.ended() {
		return nil
	}
	return s.proc.exitError(s.port)
}

func (s *Server) start(ctx context.Context) error {
	if err := s.cfg.Validate(); err != nil {
		return fmt.Errorf("redis-server: %w", err)
	}
	if s.PID() != 0 {
		return ErrRunning
	}
	binary, err := findBinary(s.cfg.Binary)
	if err != nil {
		return err
	}
	fresh := s.Dir() == ""
	if err := s.ensureFolder(); err != nil {
		return err
	}
	err = s.launch(ctx, binary)
	if err != nil && fresh {
		err = errors.Join(err, s.closeFolder())
	}
	return err
}

// launch tries several ports if it may choose the port: another process can take it between the
// choice and the bind. It never changes a port that clients may know already.
func (s *Server) launch(ctx context.Context, binary string) error {
	if port := s.Port(); port != 0 {
		if err := checkPort(port); err != nil {
			return err
		}
		return s.launchOn(ctx, binary, port)
	}
	var err error
	for range startTries {
		var port int
		if port, err = FreePort(); err != nil {
			return err
		}
		if err = s.launchOn(ctx, binary, port); err == nil {
			s.mu.Lock()
			s.port = port
			s.mu.Unlock()
		}
		if !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}

func (s *Server) launchOn(ctx context.Context, binary string, port int) error {
	cmd := exec.Command(binary, s.args(port)...)
	// An unknown locale in the environment would keep the server from starting.
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	p, err := launch(cmd, &output{logger: s.cfg.Logger})
	if err != nil {
		return err
	}
	if err := awaitReady(ctx, p, port); err != nil {
		if !p.ended() {
			err = errors.Join(err, p.signal(syscall.SIGKILL, true))
			<-p.done
		}
		return err
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	s.cfg.Logger.Info("redis_server.started", zap.Int("port", port), zap.Int("pid", p.pid))
	return nil
}

func (s *Server) args(port int) []string {
	args := []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", s.Dir(),
		"--daemonize", "no", "--logfile", "", "--save", "", "--appendonly", "no",
	}
	if s.cfg.AppendOnly {
		args[len(args)-1] = "yes"
		args = append(args, "--appendfsync", s.cfg.AppendFsync)
	}
	if s.cfg.ConfigFile != "" { // it must come first
		args = append([]string{s.cfg.ConfigFile}, args...)
	}
	return append(args, s.cfg.ExtraArgs...)
}

// awaitReady asks the server until it answers, or it or ctx has ended.
func awaitReady(ctx context.Context, p *process, port int) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := probe(ctx, loopback(port), p.pid)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.exitError(port)
		case <-ctx.Done():
			return fmt.Errorf("redis-server on port %d did not answer in time: %w (%w): %s",
				port, ctx.Err(), err, p.out.tail(1))
		case <-tick.C:
		}
	}
}

// terminate ends the process and leaves the folder as it is.
func (s *Server) terminate(ctx context.Context) error {
	p := s.askToStop()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		s.cfg.Logger.Info("redis_server.stopped", zap.Int("pid", p.pid))
		return nil
	case <-time.After(s.cfg.StopGrace):
	case <-ctx.Done():
	}
	s.cfg.Logger.Warn("redis_server.killed", zap.Int("pid", p.pid))
	if _, err := s.signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	<-p.done
	return nil
}

// askToStop sends SIGTERM and returns the process to wait for, or nil if none runs. SIGCONT
// follows, because a paused server acts only on SIGKILL.
func (s *Server) askToStop() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	s.proc.asked = true
	if s.proc.ended() {
		return nil
	}
	_ = s.proc.signal(syscall.SIGTERM, false)
	_ = s.proc.signal(syscall.SIGCONT, true)
	return s.proc
}

// signal signals the server and its background saves.
func (s *Server) signal(sig syscall.Signal) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return nil, ErrNotRunning
	}
	return s.proc, s.proc.signal(sig, true)
}

func (s *Server) ensureFolder() error {
	if s.Dir() != "" {
		return nil
	}
	f, err := openFolder(s.cfg.Dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folder = f
	return nil
}

func (s *Server) closeFolder() error {
	s.mu.Lock()
	f := s.folder
	s.folder = nil
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.close()
}

// findBinary returns the path of the server's command.
func findBinary(name string) (string, error) {
	names := []string{name}
	if name == "" {
		names = []string{"redis-server", "valkey-server"}
	}
	for _, n := range names {
		path, err := exec.LookPath(n)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("redis-server command: %w", err)
		}
	}
	return "", fmt.Errorf("%w (looked for %q); install it with: %s", ErrNotFound, names[0], installCommand())
}

func installCommand() string {
	if runtime.GOOS == "darwin" {
		return "brew install redis"
	}
	return "sudo apt-get install redis-server"
}
