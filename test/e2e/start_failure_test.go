package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestStartFailures starts replicas and agents that cannot work: each prints in one line what is
// wrong and what to do, and ends at once.
func TestStartFailures(t *testing.T) {
	t.Parallel()
	shared := redistest.Shared(t)
	evicting := redistest.New(t, redistest.Args("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, []byte("redis:\n  conections: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(agent, []byte("services: [{name: echo, command: {argv: [no-such-program]}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	working := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(working, []byte("node: {id: node-a}\nservices: [{name: echo, command: {argv: [cat]}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := closedPort(t)

	for _, c := range []struct {
		name    string
		program string // scheduler serve, unless set
		env     []string
		args    []string
		code    int
		want    []string // parts of the line
	}{
		{
			name: "taken port", args: []string{"--listen", taken.Addr().String(), "--redis-url", shared.URL()}, code: 1,
			want: []string{taken.Addr().String(), "address already in use"},
		},
		{
			name: "bad key", args: []string{"--config", config, "--redis-url", shared.URL()}, code: 78,
			want: []string{"redis.conections", "key_prefix or connections", config + ":"},
		},
		{
			name: "bad variable", env: []string{"FREESLOT_LIMITS__MAX_BATCH=0"}, args: []string{"--redis-url", shared.URL()}, code: 78,
			want: []string{"limits.max_batch", "FREESLOT_LIMITS__MAX_BATCH"},
		},
		{
			name: "bad flag", args: []string{"--no-such-flag"}, code: 2,
			want: []string{"--no-such-flag"},
		},
		{
			name: "evicting Redis", args: []string{"--redis-url", evicting.URL()}, code: 1,
			want: []string{"allkeys-lru", "noeviction", "CONFIG SET"},
		},
		{
			name: "no Redis", args: []string{"--exit-unreachable", "--redis-url", "redis://user:secret@" + closed}, code: 1,
			want: []string{closed, "--redis-url"},
		},
		{
			name: "agent without services", program: "nodeagent", args: []string{"--node-id", "node-a"}, code: 78,
			want: []string{"services", "expected at least one"},
		},
		{
			name: "agent with a bad value", program: "nodeagent", args: []string{"--config", working, "--max-concurrency", "0"}, code: 78,
			want: []string{"node.max_concurrency", "--max-concurrency"},
		},
		{
			name: "agent without its program", program: "nodeagent", args: []string{"--config", agent, "--node-id", "node-a"}, code: 78,
			want: []string{"no-such-program", "services[0].command.argv"},
		},
		{
			name: "agent without Redis", program: "nodeagent", args: []string{"--exit-unreachable", "--config", working, "--redis-url", "redis://user:secret@" + closed}, code: 1,
			want: []string{closed},
		},
		{
			name: "agent on an evicting Redis", program: "nodeagent", args: []string{"--config", working, "--redis-url", evicting.URL()}, code: 1,
			want: []string{"allkeys-lru", "noeviction", "CONFIG SET"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			program, args := c.program, c.args
			env := append([]string{"FREESLOT_REDIS__KEY_PREFIX=" + shared.Prefix(t)}, c.env...)
			if program == "" {
				program, args = "scheduler", append([]string{"serve"}, c.args...)
				env = append(env, "FREESLOT_LISTEN=127.0.0.1:0")
			}
			stdout, stderr, code := run(t, env, program, args...)
			if code != c.code {
				t.Errorf("exit status %d, expected %d", code, c.code)
			}
			if stdout != "" {
				t.Errorf("standard output: %s", stdout)
			}
			checkComplaint(t, stderr, c.want)
		})
	}
}

// checkComplaint expects one line for people beside what is logged, with all the parts and without
// secrets.
func checkComplaint(t *testing.T, stderr string, want []string) {
	t.Helper()
	var complaint []string
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "{") && !strings.HasPrefix(line, "Run ") {
			complaint = append(complaint, strings.TrimSpace(line))
		}
	}
	if len(complaint) != 1 {
		t.Fatalf("%d lines, expected one:\n%s", len(complaint), stderr)
	}
	for _, part := range want {
		if !strings.Contains(complaint[0], part) {
			t.Errorf("%q does not contain %q", complaint[0], part)
		}
	}
	if strings.Contains(stderr, "secret") {
		t.Errorf("the password is printed: %s", stderr)
	}
	for _, internal := range []string{"fx.", "dig.", "goroutine", "could not build"} {
		if strings.Contains(complaint[0], internal) {
			t.Errorf("%q speaks of %q", complaint[0], internal)
		}
	}
}

// closedPort is an address without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
