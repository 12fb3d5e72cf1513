package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func deadline(t *testing.T) context.Context {
	t.Helper()
	return waittest.Context(t)
}

func setup(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.Binary == "" {
		cfg.Binary = os.Getenv(binaryEnv)
	}
	srv := New(cfg)
	t.Cleanup(func() {
		if err := srv.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	if err := srv.Start(deadline(t)); err != nil {
		t.Fatalf("start (make deps installs redis-server): %v", err)
	}
	return srv
}

// ask sends one inline command and returns the first line of the reply.
func ask(addr, command string, limit time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func mustAsk(t *testing.T, srv *Server, command, want string) {
	t.Helper()
	got, err := ask(srv.Addr(), command, startLimit)
	if err != nil || got != want {
		t.Fatalf("%s: got %q, %v; want %q", command, got, err, want)
	}
}

func mustEnd(t *testing.T, done <-chan struct{}) {
	t.Helper()
	waittest.Receive(t, "the end of the server", done)
}

func TestStartStop(t *testing.T) {
	t.Parallel()
	srv := setup(t, Config{Logger: zaptest.NewLogger(t)})
	mustAsk(t, srv, "PING", "+PONG")
	if want := "redis://" + srv.Addr(); srv.URL() != want {
		t.Errorf("URL is %q, want %q", srv.URL(), want)
	}
	if err := srv.Start(deadline(t)); !errors.Is(err, ErrRunning) {
		t.Errorf("second start: %v", err)
	}
	dir, done := srv.Dir(), srv.Done()
	for range 2 {
		if err := srv.Stop(deadline(t)); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	mustEnd(t, done)
	if err := srv.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
	if srv.PID() != 0 {
		t.Error("there is a pid after Stop")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

func TestStopNeverStarted(t *testing.T) {
	t.Parallel()
	srv := New(Config{})
	if err := srv.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, call := range []func() error{srv.Kill, srv.Pause, srv.Resume} {
		if err := call(); !errors.Is(err, ErrNotRunning) {
			t.Errorf("got %v, want ErrNotRunning", err)
		}
	}
	if srv.Addr() != "" || srv.URL() != "" || srv.Done() != nil || srv.Err() != nil {
		t.Error("a server that never started claims to have an address or an end")
	}
}

func TestStartStopStress(t *testing.T) {
	t.Parallel()
	srv := setup(t, Config{})
	for range 10 {
		if err := srv.Restart(deadline(t)); err != nil {
			t.Fatal(err)
		}
		mustAsk(t, srv, "PING", "+PONG")
	}
}

func TestListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	srv := setup(t, Config{})
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ipnet, ok := a.(*net.IPNet)
		if !ok || ipnet.IP.IsLoopback() || ipnet.IP.To4() == nil {
			continue
		}
		addr := net.JoinHostPort(ipnet.IP.String(), fmt.Sprint(srv.Port()))
		if got, err := ask(addr, "PING", time.Second); err == nil {
			t.Errorf("answers on %s: %q", addr, got)
		}
	}
}

func TestKillKeepsAppendOnlyData(t *testing.T) {
	t.Parallel()
	srv := setup(t, Config{Dir: t.TempDir(), AppendOnly: true, AppendFsync: "always"})
	mustAsk(t, srv, "SET key value", "+OK")
	addr, done := srv.Addr(), srv.Done()
	if err := srv.Kill(); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, done)
	if err := srv.Err(); !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Err after Kill: %v", err)
	}
	if err := srv.Restart(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if srv.Addr() != addr {
		t.Errorf("the address changed from %s to %s", addr, srv.Addr())
	}
	if err := srv.Err(); err != nil {
		t.Errorf("Err while it runs: %v", err)
	}
	mustAsk(t, srv, "STRLEN key", ":5")
}

func TestPauseResume(t *testing.T) {
	t.Parallel()
	srv := setup(t, Config{})
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	var netErr net.Error
	if got, err := ask(srv.Addr(), "PING", 100*time.Millisecond); !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Errorf("a paused server answered %q, %v", got, err)
	}
	if err := srv.Resume(); err != nil {
		t.Fatal(err)
	}
	mustAsk(t, srv, "PING", "+PONG")
}

func TestStopPaused(t *testing.T) {
	t.Parallel()
	srv := setup(t, Config{StopGrace: time.Hour}) // it need not be killed
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Stop(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

func TestUnexpectedExit(t *testing.T) {
	t.Parallel()
	srv := setup(t, Config{})
	done := srv.Done()
	// The connection ends without a reply.
	_, _ = ask(srv.Addr(), "SHUTDOWN NOSAVE", startLimit)
	mustEnd(t, done)
	if err := srv.Err(); !errors.Is(err, ErrExited) {
		t.Errorf("Err: %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	// Another Redis holds the port: its PONG must not count as the child's.
	first := setup(t, Config{})
	err := New(Config{Binary: os.Getenv(binaryEnv), Port: first.Port()}).Start(deadline(t))
	oneLine(t, err, ErrPortTaken, fmt.Sprint(first.Port()))
}

// TestPortLost: the port was free when it was checked, but taken when the child bound it; the child
// reports it.
func TestPortLost(t *testing.T) {
	t.Parallel()
	first := setup(t, Config{})
	second := New(Config{Binary: os.Getenv(binaryEnv)})
	if err := second.ensureFolder(); err != nil {
		t.Fatal(err)
	}
	defer second.Stop(context.Background())
	binary, err := findBinary(os.Getenv(binaryEnv))
	if err != nil {
		t.Fatal(err)
	}
	oneLine(t, second.launchOn(deadline(t), binary, first.Port()), ErrPortTaken, fmt.Sprint(first.Port()))
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	locked := setup(t, Config{Dir: t.TempDir()})
	for name, test := range map[string]struct {
		cfg  Config
		want error
		text string
	}{
		"binary missing":  {Config{Binary: "no-such-redis-server"}, ErrNotFound, installCommand()},
		"path missing":    {Config{Binary: "/no/such/redis-server"}, ErrNotFound, "/no/such/redis-server"},
		"folder unusable": {Config{Dir: filepath.Join(file, "data")}, ErrDir, file},
		"folder in use":   {Config{Dir: locked.Dir()}, ErrDir, locked.Dir()},
		"bad argument":    {Config{ExtraArgs: []string{"--no-such-option", "1"}}, ErrExited, "no-such-option"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.cfg.Binary == "" {
				test.cfg.Binary = os.Getenv(binaryEnv)
			}
			srv := New(test.cfg)
			oneLine(t, srv.Start(deadline(t)), test.want, test.text)
			if srv.PID() != 0 || srv.Dir() != "" {
				t.Error("a failed start left something behind")
			}
		})
	}
}

func oneLine(t *testing.T, err, want error, text string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
		t.Errorf("not one line with %q in it: %q", text, err)
	}
}

func TestStartIsBoundByContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	srv := New(Config{Binary: os.Getenv(binaryEnv)})
	if err := srv.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if srv.PID() != 0 || srv.Dir() != "" {
		t.Error("a failed start left something behind")
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	err := Config{Port: -1, AppendFsync: "sometimes", StopGrace: -time.Second}.Validate()
	for _, field := range []string{"port", "appendfsync", "stop grace"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("zero config: %v", err)
	}
}

// TestParentKilled shows that a server does not outlive a parent that could not clean up.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("only Linux promises this")
		return
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), orphanEnv+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || addr == "error:" {
		t.Fatalf("parent: %q %v", line, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if got, err := ask(addr, "PING", startLimit); got != "+PONG" {
		t.Fatalf("before: %q, %v", got, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := deadline(t); ; {
		if _, err := ask(addr, "PING", time.Second); errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		select {
		case <-tick.C:
		case <-end.Done():
			t.Fatal("the server outlived its parent")
		}
	}
}
