// Package postgrestest starts a PostgreSQL for a test, of Debian's or another installation.
//
//	postgres := postgrestest.New(t)
//	postgres.Exec("CREATE TABLE ids (id text)")
//
// A start takes a second or two, so a package has one server, in one test with subtests. Where
// PostgreSQL is not installed the test is skipped, except in continuous integration (CI=true),
// which installs it.
package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freeslot/freeslot/internal/process/procgroup"
)

// limit bounds a start, a stop and a statement. They take milliseconds, but the machine may be
// busy.
const limit = 2 * time.Minute

// settings leave out what only matters when the machine fails. Commits reach the kernel, so that
// they outlive Kill.
var settings = []string{"fsync=off", "full_page_writes=off", "shared_buffers=32MB"}

// Server is a test's own server. Its methods fail the test, and are for the test's own goroutine.
type Server struct {
	*Cluster
	tb    testing.TB
	cmd   *exec.Cmd
	out   *bytes.Buffer // of cmd; read once ended is closed
	ended chan struct{}
}

// New starts a server that is stopped and removed at the end of the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cluster, err := Create(ctx)
	if errors.Is(err, ErrNotFound) && os.Getenv("CI") == "" {
		tb.Skipf("this test needs PostgreSQL; make deps installs it: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Cluster: cluster, tb: tb}
	tb.Cleanup(func() {
		s.end(syscall.SIGINT)
		if err := cluster.Remove(); err != nil {
			tb.Error(err)
		}
	})
	s.Start()
	return s
}

// Start starts the server again, with its data, after Kill.
func (s *Server) Start() {
	s.tb.Helper()
	cmd, err := s.Command(settings...)
	if err != nil {
		s.tb.Fatal(err)
	}
	attr := procgroup.Attr() // the kernel kills the server when the test process is killed
	attr.Credential = cmd.SysProcAttr.Credential
	s.cmd, s.out, s.ended = cmd, &bytes.Buffer{}, make(chan struct{})
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = attr, s.out, s.out
	started := make(chan error, 1)
	go func(ended chan struct{}) {
		runtime.LockOSThread() // the thread must stay: see procgroup.Attr
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // a test that needs the server sees that it is gone
		}
	}(s.ended)
	if err := <-started; err != nil {
		s.tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.Await(ctx, s.ended); err != nil {
		s.end(syscall.SIGKILL)
		s.tb.Fatalf("start postgres: %v\n%s", err, s.out)
	}
}

// Kill ends the server at once with all its connections, as a crash does, and returns when it is
// gone. Committed data stays.
func (s *Server) Kill() { s.end(syscall.SIGQUIT) }

func (s *Server) end(signal syscall.Signal) {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(signal) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(limit):
		_ = s.cmd.Process.Kill()
		<-s.ended
		s.tb.Errorf("postgres did not end on %v within %s\n%s", signal, limit, s.out)
	}
}

// Exec runs statements, and returns the first column of the last row as text, if there is one.
func (s *Server) Exec(statements string) (text string) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := pgconn.Connect(ctx, s.URL())
	if err != nil {
		s.tb.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	results, err := conn.Exec(ctx, statements).ReadAll()
	if err != nil {
		s.tb.Fatalf("%s: %v", statements, err)
	}
	for _, r := range results {
		for _, row := range r.Rows {
			text = string(row[0])
		}
	}
	return text
}
