package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// asProcessEnv makes the test binary run the command itself.
const asProcessEnv = "FREESLOT_TEST_AS_NODEAGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asProcessEnv) != "" {
		main()
	}
	acltest.Main(m, script.RoleAgent, cell.Access) // the rights of the process in Redis
}

// output is a buffer for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// command runs the program inside the test, without an environment of its own.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err output
	code = run(args, &environment{ctx: t.Context(), hurry: t.Context(), out: &out, err: &err, environ: []string{}})
	return code, out.String(), err.String()
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	if code, out, _ := command(t, "--help"); code != exitOK || !strings.Contains(out, "stop_timeout") || !strings.Contains(out, "--max-concurrency") {
		t.Errorf(`%d %s; want code == %v, strings.Contains(out, "stop_timeout"), strings.Contains(out, "--max-concurrency")`, code, out, exitOK)
	}
	for _, arg := range []string{"--version", "version"} {
		if code, out, _ := command(t, arg); code != exitOK || !strings.HasPrefix(out, "nodeagent dev") {
			t.Errorf(`%s: %d %s; want code == %v, strings.HasPrefix(out, "nodeagent dev")`, arg, code, out, exitOK)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--confg x":          "nodeagent: flag provided but not defined: -confg\n",
		"extra":              "nodeagent: unexpected argument extra",
		"--set stop_timeout": `nodeagent: invalid value "stop_timeout" for flag -set: expected KEY=VALUE such as --set stop_timeout=5m` + "\n",
	} {
		refused(t, args, exitUsage, want)
	}
}

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                               "services is empty, expected at least one service (no configuration file is named: --config FILE)\n",
		"--set log.level=x":              "log.level is \"x\", expected debug, info, warn or error (from --set log.level)\nservices is empty, expected at least one service (no configuration file is named: --config FILE)\n",
		"--max-concurrency 0 " + example: "node.max_concurrency is 0, expected 1 to 65536 (from --max-concurrency)\n",
		"--set log.level=x " + example:   `log.level is "x", expected debug, info, warn or error (from --set log.level)` + "\n",
		// A mistake beside an unreadable file stays a mistake.
		"--set log.level=x --set redis.password_file=/nowhere " + example: `log.level is "x"`,
	} {
		refused(t, args, exitConfig, want)
	}
}

// TestUnreadableFiles: a file that is not there yet, on a mount or from a secret store, is a
// failure that a restart may mend.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--set redis.password_file=" + empty + " " + example:                 "nodeagent: redis.password_file names " + empty + ", which is empty",
		"--config /nowhere.yaml":                                             "nodeagent: cannot read the configuration file /nowhere.yaml: no such file or directory\n",
		"--config /nowhere.yaml --set log.level=x":                           "nodeagent: cannot read the configuration file /nowhere.yaml: no such file or directory\n",
		"--set redis.password_file=/nowhere " + example:                      "nodeagent: redis.password_file cannot be read: /nowhere: no such file or directory (from --set redis.password_file)\n",
		tls + "ca_file=/nowhere " + example:                                  "nodeagent: redis.tls.ca_file cannot be read: /nowhere: no such file or directory (from --set redis.tls.ca_file)\n",
		tls + "cert_file=/no --set redis.tls.key_file=/no " + example:        "nodeagent: redis.tls.cert_file cannot be read: /no: no such file or directory (from --set redis.tls.cert_file)\n",
		"--check --set redis.password_file=/nowhere " + example:              "nodeagent: redis.password_file cannot be read: /nowhere: no such file or directory (from --set redis.password_file)\n",
		fmt.Sprintf(checked, `"ca_file":"/nowhere"`):                         `nodeagent: services[0].check.grpc.tls.ca_file is "/nowhere", which cannot be read`,
		fmt.Sprintf(checked, `"cert_file":"/nowhere","key_file":"/nowhere"`): `nodeagent: services[0].check.grpc.tls.cert_file is "/nowhere", which cannot be read`,
	} {
		refused(t, args, exitFailure, want)
	}
}

const tls = "--redis-url rediss://127.0.0.1:1 --set redis.tls."

// checked is an agent whose service has a check by TLS.
const checked = `--node-id=n1 --set services=[{"name":"a","command":{"argv":["cat"]},"check":{"grpc":{"address":"a:1","tls":{%s}}}}]`

// refused runs the program with these arguments, which have no spaces.
func refused(t *testing.T, args string, want int, says string) {
	t.Helper()
	if code, _, got := command(t, strings.Fields(args)...); code != want || !strings.HasPrefix(got, says) {
		t.Errorf("%q: exit code %d, expected %d\n got %s\nwant %s", args, code, want, got, says)
	}
}

const example = "--config ../../deploy/nodeagent.example.yaml"

func TestCheck(t *testing.T) {
	t.Parallel()
	code, out, err := command(t, append(strings.Fields(example), "--check")...)
	if code != exitOK || out != "the configuration is valid\n" {
		t.Errorf(`%d %s %s; want code == %v, out == "the configuration is valid\n"`, code, out, err, exitOK)
	}
}

// TestMissingProgram: --check and the start find it, and name the key.
func TestMissingProgram(t *testing.T) {
	t.Parallel()
	want := `services[0].command.argv begins with "no-such-program", which cannot be run: executable file not found in $PATH (from --set services)` + "\n"
	for _, more := range [][]string{{}, {"--check"}} {
		args := append([]string{"--node-id=n1", "--set", "services=[{name: a, command: {argv: [no-such-program]}}]"}, more...)
		if code, _, got := command(t, args...); code != exitConfig || got != want {
			t.Errorf("%q: exit code %d\n got %s\nwant %s", more, code, got, want)
		}
	}
}

// TestStartFailures: one line with the reason, and exit code 1.
func TestStartFailures(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	web := server.Listener.Addr().String()
	weak := redistest.New(t)
	admin := weak.Client(t)
	for _, user := range []string{"agent-n1", "fleet"} {
		if err := admin.Do(t.Context(), admin.B().Arbitrary("ACL", "SETUSER", user, "on", ">x", "~*", "+@connection", "+info").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	evicting := redistest.New(t, redistest.Args("--maxmemory-policy", "allkeys-lru"))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no redis": {
			[]string{"--exit-unreachable", "--redis-url", "redis://user:hidden@127.0.0.1:1"},
			"nodeagent: redis at 127.0.0.1:1 cannot be used: dial tcp 127.0.0.1:1: connect: connection refused (redis.url in the configuration, or --redis-url)\n",
		},
		"wrong password": {
			[]string{"--redis-url", strings.Replace(redis.URL(), "redis://", "redis://user:hidden@", 1)},
			"nodeagent: redis at " + redis.Addrs()[0] + " cannot be used: WRONGPASS invalid username-password pair or user is disabled. (redis.url in the configuration, or --redis-url)\n",
		},
		"not redis": {
			[]string{"--redis-url", "redis://" + web},
			"nodeagent: redis at " + web + " cannot be used: what answers there is not Redis, or expects TLS (rediss://): received unknown message type: 72 " +
				"(redis.url in the configuration, or --redis-url)\n",
		},
		"user of the node": {
			[]string{"--node-id", "n1", "--redis-url", "redis://agent-n1:x@" + weak.Addrs()[0]},
			`(Redis' user is agent-n1; "schedctl acl --role agent --node n1 --key-prefix PREFIX --add" prints what it may lack (with --cluster on a cluster))`,
		},
		"user of another node": {
			[]string{"--node-id", "n2", "--redis-url", "redis://agent-n1:x@" + weak.Addrs()[0]},
			`(Redis' user is agent-n1 and the node is n2: if that is the user of a node n1, look at node.id and redis.username; ` +
				`if it is one of several nodes, "schedctl acl --role agent --user agent-n1 --key-prefix PREFIX --add" prints what it may lack)`,
		},
		"user of all": {
			[]string{"--node-id", "n1", "--redis-url", "redis://fleet:x@" + weak.Addrs()[0], "--set", "redis.cells=2"},
			`(Redis' user is fleet; "schedctl acl --role agent --user fleet --key-prefix PREFIX --cells 2 --add" prints what it may lack (with --cluster on a cluster))`,
		},
		"evicting redis": {
			[]string{"--redis-url", evicting.URL()},
			"nodeagent: redis at " + evicting.Addrs()[0] + " has maxmemory-policy allkeys-lru, which deletes jobs when memory runs short, expected noeviction: " +
				"run `redis-cli CONFIG SET maxmemory-policy noeviction` and put the same into redis.conf\n",
		},
		"taken port": {
			[]string{"--redis-url", redis.URL(), "--metrics-listen", redis.Addrs()[0]},
			"nodeagent: listen on metrics_listen " + redis.Addrs()[0] + ": bind: address already in use\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := redis.Prefix(t)
			args := append(strings.Fields(example+" --log-level error --set redis.key_prefix="+prefix), test.args...)
			code, _, got := command(t, args...)
			if _, denied, ok := strings.Cut(got, " ("); ok && strings.Contains(got, "NOPERM") {
				got = strings.ReplaceAll(strings.TrimSpace("("+denied), prefix, "PREFIX")
			}
			if code != exitFailure || got != test.want {
				t.Errorf("exit code %d\n got %s\nwant %s", code, got, test.want)
			}
		})
	}
}

// node is the program as a process.
type node struct {
	t    *testing.T
	cell *cell.Cell
	cmd  *exec.Cmd
	log  *bufio.Scanner
	last string
	// release is a named pipe: a line in it ends a job.
	release string
	// redis and prefix lead to its keys.
	redis  *redistest.Target
	prefix string
	// file is its configuration; it has only a comment until a test writes it.
	file string
}

// prepare makes the fleet and the arguments of a program with one service, "wait". Its jobs write
// to the returned pipe when they begin, and go on until they are stopped.
func prepare(t *testing.T, set ...string) (n *node, begun *bufio.Reader, args []string) {
	t.Helper()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: prefix}}, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Start(t.Context()), c.OpenReplies(t.Context(), "replica-1")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })

	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0) // also for writing, so that no side waits for the other
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })

	file := filepath.Join(t.TempDir(), "nodeagent.yaml")
	if err := os.WriteFile(file, []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args = []string{
		"--config=" + file, "--node-id=node-1", "--redis-url=" + redis.URL(), "--set=redis.key_prefix=" + prefix, "--set=heartbeat_interval=100ms",
		// Single quotes inside YAML's double ones.
		`--set=services=[{name: wait, command: {argv: [sh, -c, "echo begun > '` + fifo + `'; read x < '` + fifo + `.go'"], kill_grace: 1s}}]`,
	}
	if err := syscall.Mkfifo(fifo+".go", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range set {
		args = append(args, "--set="+s)
	}
	return &node{t: t, cell: c, release: fifo + ".go", redis: redis, prefix: prefix, file: file}, bufio.NewReader(pipe), args
}

// start runs the program of prepare.
func start(t *testing.T, set ...string) (n *node, begun *bufio.Reader) {
	t.Helper()
	n, begun, args := prepare(t, set...)
	n.run(exec.Command(os.Args[0], args...))
	return n, begun
}

// run runs the program as cmd, which may start it by another one.
func (n *node) run(cmd *exec.Cmd) {
	t := n.t
	t.Helper()
	cmd.Env = append(os.Environ(), asProcessEnv+"=1", "GORACE=atexit_sleep_ms=0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	n.cmd, n.log = cmd, bufio.NewScanner(stderr)
	n.logged("agent.started")
}

// logged waits for a line.
func (n *node) logged(event string) {
	n.t.Helper()
	for n.log.Scan() {
		if strings.Contains(n.log.Text(), `"`+event+`"`) {
			return
		}
	}
	n.t.Fatalf("the process ended without %s", event)
}

// exit waits for the end of the process.
func (n *node) exit() int {
	for n.log.Scan() {
	}
	_ = n.cmd.Wait()
	return n.cmd.ProcessState.ExitCode()
}

func (n *node) submit() string {
	n.t.Helper()
	s := cell.Submission{JobID: cell.NewJobID(0), Tenant: "acme", Job: &freeslot.Job{Service: "wait"}, Candidates: []string{"node-1"}, ReplyTo: "replica-1"}
	if p, err := n.cell.Submit(n.t.Context(), s); err != nil || !p.Assigned {
		n.t.Fatalf("%+v, %v; want no error, p.Assigned", p, err)
	}
	return s.JobID
}

func (n *node) end(jobID string) freeslot.JobStatus {
	n.t.Helper()
	var status freeslot.JobStatus
	waittest.Until(n.t, "the end of the job", func() bool {
		replies, err := n.cell.Replies(n.t.Context(), "replica-1", n.last, time.Second, 10)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, r := range replies {
			if n.last = r.ID; r.Status.ID == jobID {
				status = r.Status
				return true
			}
		}
		return false
	}, func() any { return n.last })
	return status
}

func (n *node) signal() {
	n.t.Helper()
	n.send(syscall.SIGTERM)
}

func (n *node) send(signal syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(signal); err != nil {
		n.t.Fatal(err)
	}
}

// labels are the labels of node-1 in Redis.
func (n *node) labels() map[string]string {
	n.t.Helper()
	changes, err := n.cell.Changes(n.t.Context(), 0, 10)
	if err != nil || len(changes.Nodes) != 1 || changes.Nodes[0].Node.ID != "node-1" {
		n.t.Fatalf(`%+v, %v; want no error, len(changes.Nodes) == 1, changes.Nodes[0].Node.ID == "node-1"`, changes.Nodes, err)
	}
	return changes.Nodes[0].Node.Labels
}

// nothingLeft looks at every key of the fleet: no key is named after the node, and no set has it as
// a member. The settings of operators stay, and so does the note that the node is gone.
func (n *node) nothingLeft() {
	n.t.Helper()
	client := n.redis.Client(n.t)
	for cursor := uint64(0); ; {
		page, err := client.Do(n.t.Context(), client.B().Scan().Cursor(cursor).Match(n.prefix+":*").Build()).AsScanEntry()
		if err != nil {
			n.t.Fatal(err)
		}
		for _, key := range page.Elements {
			if strings.Contains(key, "node-1") {
				n.t.Errorf("%s is left", key)
			}
			kind, err := client.Do(n.t.Context(), client.B().Type().Key(key).Build()).ToString()
			if err != nil {
				n.t.Fatal(err)
			}
			switch kind {
			case "set":
				if member, err := client.Do(n.t.Context(), client.B().Sismember().Key(key).Member("node-1").Build()).AsBool(); err != nil || member && key != n.prefix+":drained" {
					n.t.Errorf("%s has the node as a member (%v)", key, err)
				}
			case "zset":
				if err := client.Do(n.t.Context(), client.B().Zscore().Key(key).Member("node-1").Build()).Error(); !rueidis.IsRedisNil(err) {
					n.t.Errorf("%s has the node as a member (%v)", key, err)
				}
			case "hash":
				if there, err := client.Do(n.t.Context(), client.B().Hexists().Key(key).Field("node-1").Build()).AsBool(); err != nil || there {
					n.t.Errorf("%s has the node as a field (%v)", key, err)
				}
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return
		}
	}
}

func TestFirstSignalDrains(t *testing.T) {
	t.Parallel()
	n, begun := start(t)
	job := n.submit()
	if _, err := begun.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	n.signal()
	n.logged("node.draining")
	if err := os.WriteFile(n.release, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := n.end(job); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	n.nothingLeft()
}

func TestSecondSignalInterrupts(t *testing.T) {
	t.Parallel()
	n, begun := start(t, "stop_timeout=1h")
	job := n.submit()
	if _, err := begun.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	n.signal()
	n.logged("node.draining")
	time.Sleep(interrupt.Gap) // what comes sooner belongs to the first signal
	n.signal()
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if s, err := n.cell.Job(t.Context(), "", job); err != nil || s.State != freeslot.StateWaiting || s.Failures != 0 {
		t.Errorf("%+v, %v, expected the job to wait for another node", s, err)
	}
	n.nothingLeft()
}

// TestStopTimeout: jobs that still run after stop_timeout are handed back.
func TestStopTimeout(t *testing.T) {
	t.Parallel()
	n, begun := start(t, "stop_timeout=100ms")
	job := n.submit()
	if _, err := begun.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	n.signal()
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if s, err := n.cell.Job(t.Context(), "", job); err != nil || s.State != freeslot.StateWaiting || s.Failures != 0 {
		t.Errorf("%+v, %v, expected the job to wait for another node", s, err)
	}
	n.nothingLeft()
}

// TestHangupReloads: SIGHUP applies the file, flags still win, a bad file is refused line by line,
// and the process goes on in any case.
func TestHangupReloads(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored where this test runs")
	}
	n, _ := start(t)
	reload := func(yaml, event string) string {
		t.Helper()
		if err := os.WriteFile(n.file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		n.send(syscall.SIGHUP)
		n.logged(event)
		return n.log.Text()
	}
	if got := reload("node: {id: node-2, labels: {zone: b}}", "config.reloaded"); !strings.Contains(got, `"changed":["node.labels"]`) {
		t.Error(got)
	}
	if got := n.labels(); got["zone"] != "b" {
		t.Error(got)
	}
	reload("node: {labels: {zone: b}}", "config.unchanged")
	// With level warn the next line is a refusal, although this change is in force.
	if err := os.WriteFile(n.file, []byte("log: {level: warn}"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.send(syscall.SIGHUP)
	waittest.Until(t, "the change to be in force", func() bool { return len(n.labels()) == 0 })
	if got := reload("log: {level: warn}\nnode: {labels: {zone: c}, max_concurrency: 0}", "config.refused"); !strings.Contains(got, `"key":"node.max_concurrency"`) ||
		!strings.Contains(got, "node.max_concurrency is 0, expected 1 to 65536 (from "+n.file+":2)") {
		t.Error(got)
	}
	if got := reload("redis: {cells: 2}", "config.refused"); !strings.Contains(got, "redis.cells has changed, which needs a restart of the agent") {
		t.Error(got)
	}
	if err := os.Remove(n.file); err != nil {
		t.Fatal(err)
	}
	n.send(syscall.SIGHUP)
	n.logged("config.refused")
	if got := n.log.Text(); !strings.Contains(got, "cannot read the configuration file "+n.file+": no such file or directory") {
		t.Error(got)
	}
	if got := reload("log: {level: info}", "config.reloaded"); !strings.Contains(got, `"changed":["log.level"]`) {
		t.Error(got)
	}
	n.signal()
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	n.nothingLeft()
}

func TestSupersededEnds(t *testing.T) {
	t.Parallel()
	n, _ := start(t)
	if _, err := n.cell.Register(t.Context(), freeslot.Node{ID: "node-1", MaxConcurrency: 1}, cell.NewEpoch()); err != nil {
		t.Fatal(err)
	}
	n.logged("node.superseded")
	code := n.exit()
	if code != exitSuperseded {
		t.Errorf("exit code %d", code)
	}
	// Two agents with one name that restart again and again would take each other's jobs for ever.
	if !slices.Contains(final(t), code) {
		t.Errorf("systemd starts it again after exit code %d", code)
	}
}

// TestCrashedAgentIsStartedAgain: the watchdog's SIGABRT ends a Go process like a panic does, with
// the exit code that many programs, this one too, have for a wrong command line.
func TestCrashedAgentIsStartedAgain(t *testing.T) {
	t.Parallel()
	n, _ := start(t)
	n.send(syscall.SIGABRT)
	code := n.exit()
	if want := []int{exitSuperseded, exitConfig}; !slices.Equal(final(t), want) || slices.Contains(want, code) {
		t.Errorf("exit code %d, and systemd does not start it again after %v, expected %v", code, final(t), want)
	}
}

// final are the exit codes after which systemd does not restart the agent.
func final(t *testing.T) []int {
	t.Helper()
	unit, err := os.ReadFile("../../deploy/nodeagent.service")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(unit), "\nRestartPreventExitStatus=")
	line, _, _ := strings.Cut(rest, "\n")
	var codes []int
	for _, word := range strings.Fields(line) {
		code, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, code)
	}
	return codes
}
