package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestDev brings up the whole system for trying out, lets its first batch run, and expects it to
// leave nothing behind but its folder.
func TestDev(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dev")
	for range 2 { // the second time on the data of the first
		stdout, stderr, code := runDev(t, "--exit", "--dir", dir)
		if code != 0 {
			t.Fatalf("exit status %d\n%s\n%s", code, stdout, stderr)
		}
		checkTable(t, stdout)
		if strings.Contains(stdout+stderr, "demo") {
			t.Errorf("--exit has a demo load; want none:\n%s%s", stdout, stderr)
		}
		if strings.Contains(stdout, "warning") {
			t.Errorf("a warning without a reason:\n%s", stdout)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// TestDevEmbedded needs no redis-server, and warns of the stand-in.
func TestDevEmbedded(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := runDev(t, "--embedded", "--exit", "--dir", t.TempDir())
	if code != 0 {
		t.Fatalf("exit status %d\n%s\n%s", code, stdout, stderr)
	}
	if !strings.HasPrefix(stdout, "warning: ") || !strings.Contains(stdout, "stand-in devredis") {
		t.Errorf("no warning of the stand-in:\n%s", stdout)
	}
	checkTable(t, stdout)
}

// TestDevCtrlC: everything ends, and the Redis that was started is gone.
func TestDevCtrlC(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "scheduler", "dev", "--listen", "127.0.0.1:0", "--redis-port", "0", "--load", "10", "--dir", t.TempDir())
	serving := make(map[string]string) // the address by the first word of a line
	for next := 0; serving["HTTP"] == "" || serving["Redis"] == ""; {
		line, n, err := p.stdout.line(t, next)
		if err != nil {
			t.Fatal(err)
		}
		if words := strings.Fields(line); len(words) >= 2 {
			serving[words[0]] = words[1]
		}
		next = n
	}
	listen := strings.TrimSuffix(strings.TrimPrefix(serving["HTTP"], "http://"), "/v1/jobs")
	said, _, _ := run(t, nil, "schedctl", "--server", "http://"+listen, "lists", "query", "vip", "user-1", "nobody")
	if got := strings.Join(strings.Fields(said), " "); got != "ID MEMBER EXPIRES FROM user-1 yes - version 1 nobody no - version 1" {
		t.Errorf("the list says:\n%s", said)
	}
	if want := "console: http://" + listen + "/console/\n"; !strings.HasPrefix(p.stdout.String(), want) {
		t.Errorf("the output begins with %.80q; want %q", p.stdout.String(), want)
	}
	checkLoad(t, "http://"+listen)
	redis := strings.TrimPrefix(serving["Redis"], "redis://")
	pid := redisPID(t, redis)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("redis-server has no process %d: %v", pid, err)
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("ended with status %d after SIGINT", code)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("redis-server %d is still there: %v", pid, err)
	}
	for _, addr := range []string{listen, redis} {
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); err == nil {
			_ = conn.Close()
			t.Errorf("something still listens on %s", addr)
		}
	}
}

// TestDevUnusable: a failure, and one line with what to do.
func TestDevUnusable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file") // even root cannot make a folder of it
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for name, c := range map[string]struct {
		args []string
		flag string
	}{
		"port":       {[]string{"--listen", l.Addr().String()}, "--listen"},
		"redis port": {[]string{"--redis-port", port}, "--redis-port"},
		"stand-in":   {[]string{"--embedded", "--redis-port", port}, "--redis-port"},
		"folder":     {[]string{"--dir", file}, "--dir"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := runDev(t, append([]string{"--dir", t.TempDir()}, c.args...)...)
			if code <= 0 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.flag) {
				t.Errorf("exit status %d, expected one line that names %s\n%s%s", code, c.flag, stdout, stderr)
			}
		})
	}
}

// checkLoad waits until the demo load has shown all that it has.
func checkLoad(t *testing.T, server string) {
	t.Helper()
	for _, c := range []struct {
		shows string
		args  []string
	}{
		{" dead ", []string{"list", "--tenant", "demo", "--state", "dead"}},
		{" succeeded ", []string{"list", "--tenant", "demo"}},
		{"@every 30s", []string{"schedules", "list"}},
		{"demo:camera-1", []string{"lock", "ls"}},
		{"HITS", []string{"lists", "stats", "vip"}},
		{"traffic.requests_per_second", []string{"registry", "show", "demo-api"}},
	} {
		eventually(t, func() error {
			stdout, stderr, _ := run(t, nil, "schedctl", append([]string{"--server", server}, c.args...)...)
			if !strings.Contains(stdout, c.shows) {
				return fmt.Errorf("schedctl %v shows no %q:\n%s%s", c.args, c.shows, stdout, stderr)
			}
			return nil
		})
	}
}

// TestDevLoadOff: with --load 0 nothing is done for the demo tenant, and the schedule that an
// earlier run left is gone.
func TestDevLoadOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, load := range []string{"5", "0"} {
		p := start(t, nil, "scheduler", "dev", "--listen", "127.0.0.1:0", "--redis-port", "0", "--load", load, "--dir", dir)
		server := ""
		for next := 0; server == ""; {
			line, n, err := p.stdout.line(t, next)
			if err != nil {
				t.Fatal(err)
			}
			if words := strings.Fields(line); len(words) >= 2 && words[0] == "HTTP" {
				server = strings.TrimSuffix(words[1], "/v1/jobs")
			}
			next = n
		}
		stdout, stderr, code := run(t, nil, "schedctl", "--server", server, "schedules", "list")
		if shown := strings.Contains(stdout, "@every 30s"); code != 0 || shown != (load != "0") {
			t.Errorf("--load %s: schedctl schedules list ends with %d:\n%s%s; want the schedule only with a load", load, code, stdout, stderr)
		}
		p.signal(syscall.SIGINT)
		if code := p.wait(); code != 0 {
			t.Errorf("ended with status %d after SIGINT; want 0", code)
		}
	}
	if _, stderr, code := runDev(t, "--load", "11", "--dir", dir); code != 2 || !strings.Contains(stderr, "--load is 11, expected 0 to 10") {
		t.Errorf("--load 11: exit status %d, %s; want 2 and the range", code, stderr)
	}
}

// runDev runs scheduler dev on free ports to its end.
func runDev(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run(t, nil, "scheduler", append([]string{"dev", "--listen", "127.0.0.1:0", "--redis-port", "0"}, args...)...)
}

func checkTable(t *testing.T, stdout string) {
	t.Helper()
	_, table, found := strings.Cut(stdout, "JOB ")
	rows := strings.Count(table, "\n") - 1
	if !found || rows < 1 || strings.Count(table, " succeeded ") != rows {
		t.Errorf("not every row of the table has succeeded:\n%s", stdout)
	}
}

func redisPID(t *testing.T, addr string) int {
	t.Helper()
	ctx := waittest.Context(t)
	info, err := redistest.Ask(ctx, addr, "INFO", "server").ToString()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "process_id:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("redis at %s does not tell its process:\n%s", addr, info)
	return 0
}
