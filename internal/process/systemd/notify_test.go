package systemd

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const patience = waittest.Limit

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is the other side of NOTIFY_SOCKET.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	env  []string
}

func listen(t *testing.T, name string, more ...string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{t, conn, append([]string{"HOME=/", "NOTIFY_SOCKET=" + name}, more...)}
}

func (m *manager) hears(within time.Duration) string {
	m.t.Helper()
	var buf [1 << 10]byte
	if err := m.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.conn.Read(buf[:])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return string(buf[:n])
}

func TestNotify(t *testing.T) {
	t.Parallel()
	for name, socket := range map[string]string{
		"file": filepath.Join(t.TempDir(), "notify"), "abstract": "@freeslot-notify-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := listen(t, socket)
			n := New(m.env)
			for _, step := range []struct {
				tell func() error
				want string
			}{
				{n.Ready, `^READY=1$`},
				{n.Stopping, `^STOPPING=1$`},
				{n.Reloading, `^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+$`},
				{func() error { return n.Status("two\nlines") }, `^STATUS=two lines$`},
			} {
				if err := step.tell(); err != nil {
					t.Fatal(err)
				}
				if got := m.hears(patience); !regexp.MustCompile(step.want).MatchString(got) {
					t.Errorf("heard %q, want %s", got, step.want)
				}
			}
			// A repeated status is not sent again.
			if err := errors.Join(n.Status("two\nlines"), n.Ready()); err != nil {
				t.Fatal(err)
			}
			if got := m.hears(patience); got != "READY=1" {
				t.Errorf("heard %q", got)
			}
		})
	}
}

// TestWatch: while the service lives, the manager gets a sign of life twice as often as it demands.
func TestWatch(t *testing.T) {
	t.Parallel()
	m := listen(t, filepath.Join(t.TempDir(), "notify"), "WATCHDOG_USEC=100000", "WATCHDOG_PID="+strconv.Itoa(os.Getpid()))
	var stuck atomic.Bool
	asked := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(m.env).Watch(ctx, func() bool { asked <- struct{}{}; return !stuck.Load() })
	}()
	for range 3 {
		if got := m.hears(patience); got != "WATCHDOG=1" {
			t.Errorf("heard %q", got)
		}
	}
	stuck.Store(true)
	for len(asked) > 0 {
		<-asked
	}
	<-asked
	<-asked // earlier messages are on the way by now
	for heard := m.hears(time.Millisecond); heard != ""; heard = m.hears(time.Millisecond) {
		t.Logf("on the way: %s", heard)
	}
	<-asked
	if got := m.hears(time.Millisecond); got != "" {
		t.Errorf("heard %q of a service that is stuck", got)
	}
	cancel()
	<-done
}

func TestNobodyToTell(t *testing.T) {
	t.Parallel()
	n := New([]string{"HOME=/"})
	if n != nil {
		t.Fatal("there is no manager")
	}
	n.Watch(t.Context(), func() bool { t.Error("asked"); return true })
	if err := errors.Join(n.Ready(), n.Stopping(), n.Reloading(), n.Status("x")); err != nil {
		t.Error(err)
	}
	// The watchdog is for another process.
	m := listen(t, filepath.Join(t.TempDir(), "notify"), "WATCHDOG_USEC=1000", "WATCHDOG_PID=1")
	New(m.env).Watch(t.Context(), func() bool { t.Error("asked"); return true })
	if err := New([]string{"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "none")}).Ready(); err == nil || !strings.HasPrefix(err.Error(), "notify systemd: ") {
		t.Errorf("a manager that is gone: %v", err)
	}
}

// TestUnits: systemd understands the units, except that the programs are not installed at their
// paths.
func TestUnits(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed: ", err)
	}
	units, err := filepath.Glob("../../../deploy/*.service")
	if err != nil || len(units) != 2 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), filepath.Base(unit))
		installed := regexp.MustCompile(`(?m)^ExecStart=\S+`).ReplaceAll(text, []byte("ExecStart=/bin/true"))
		if err := os.WriteFile(copied, installed, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", copied).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, filepath.Base(unit)) {
				t.Error(strings.TrimSpace(line))
			}
		}
		if err != nil {
			t.Errorf("%s: %v\n%s; want no error", unit, err, out)
		}
	}
}
