package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

// asMain makes the test binary the command itself, for tests that need a process.
const asMain = "FREESLOT_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	acltest.Main(m, script.RoleReplica, replica.Access()...) // the rights of the process in Redis
}

// buffer is written to by the command and read by the test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// command runs the command line to its end.
func command(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr buffer
	code = run(args, &environment{ctx: t.Context(), out: &stdout, err: &stderr, environ: []string{}})
	return code, stdout.String(), stderr.String()
}

func TestHelp(t *testing.T) {
	t.Parallel()
	code, out, _ := command(t, "--help")
	if code != exitOK || !strings.Contains(out, "scheduler serve --config") {
		t.Errorf(`%d %s; want code == %v, strings.Contains(out, "scheduler serve --config")`, code, out, exitOK)
	}
	code, out, _ = command(t, "serve", "--help")
	if code != exitOK || !strings.Contains(out, "drain_timeout") || !strings.Contains(out, "FREESLOT_REDIS__URL") {
		t.Errorf(`%d %s; want code == %v, strings.Contains(out, "drain_timeout"), strings.Contains(out, "FREESLOT_REDIS__URL")`, code, out, exitOK)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"--version", "version"} {
		if code, out, _ := command(t, arg); code != exitOK || !strings.HasPrefix(out, "scheduler dev") {
			t.Errorf(`%s: %d %s; want code == %v, strings.HasPrefix(out, "scheduler dev")`, arg, code, out, exitOK)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"serv"}, {"serve", "--lisen", "x"}, {"serve", "extra"}, {"serve", "--set", "limits"}} {
		if code, _, err := command(t, args...); code != exitUsage || err == "" {
			t.Errorf("%q: exit code %d, expected 2; %s", args, code, err)
		}
	}
}

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte("redis:\n  conections: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, got := command(t, "serve", "--config", file, "--set", "heartbeat_limit=5s", "--listen", ":7480")
	want := `heartbeat_limit is 5s, expected at least twice heartbeat_interval (3s): one late heartbeat would cost a healthy node its jobs (from --set heartbeat_limit)
listen is ":7480", reachable from other machines, which needs tokens: set tokens or tokens_file, or listen on 127.0.0.1 (from --listen)
redis.conections is not a key of the configuration, expected url, urls, username, password_file, sentinel_username, sentinel_password_file, tls, cells, key_prefix or connections (from ` + file + `:2)
`
	if diff := cmp.Diff(want, got); code != exitConfig || diff != "" {
		t.Errorf("exit code %d\n%s", code, diff)
	}
}

// TestUnreadableFiles: a file that is not there yet, on a mount or from a secret store, is a
// failure that a restart may mend.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	const missing = "/nowhere: no such file or directory (from --set redis.password_file)\n"
	empty := filepath.Join(t.TempDir(), "token") // that is just being written
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--config /nowhere.yaml": "scheduler: cannot read the configuration file /nowhere.yaml: no such file or directory\n",
		"--redis-url redis://127.0.0.1:1 --set redis.password_file=/nowhere":         "scheduler: redis.password_file cannot be read: " + missing,
		`--set tokens=[{"role":"client","tenant":"a","token_file":"` + empty + `"}]`: `scheduler: tokens[0].token_file is "` + empty + `", which is empty, expected a file that holds the token (from --set tokens)` + "\n",
	} {
		if code, _, got := command(t, append([]string{"serve"}, strings.Fields(args)...)...); code != exitFailure || got != want {
			t.Errorf("%s: exit code %d, %s", args, code, got)
		}
	}
}

// TestNotStartedAgain: systemd does not restart a replica with an invalid configuration, because
// that would not help.
func TestNotStartedAgain(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../deploy/scheduler.service")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\nRestartPreventExitStatus=%d\n", exitConfig); !strings.Contains(string(unit), want) {
		t.Errorf("the unit lacks %q", want)
	}
}

// TestDocumentedMistakes: the manual shows the exact output of the program.
func TestDocumentedMistakes(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/scheduler.md")
	if err != nil {
		t.Fatal(err)
	}
	const shown = "/etc/freeslot/scheduler.yaml"
	_, example, _ := strings.Cut(string(manual), "$ scheduler serve --check --config "+shown+" --set heartbeat_limit=5s\n")
	example, _, ok := strings.Cut(example, "```")
	if !ok {
		t.Fatal("the example is not there")
	}
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte("redis:\n  conections: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, got := command(t, "serve", "--check", "--config", file, "--set", "heartbeat_limit=5s")
	if diff := cmp.Diff(example, strings.ReplaceAll(got, file, shown)); diff != "" {
		t.Error(diff)
	}
}

// TestIgnored: a redis-server that runs in the clone leaves nothing that git would commit.
func TestIgnored(t *testing.T) {
	t.Parallel()
	ignored, err := os.ReadFile("../../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"/appendonlydir/\n", "/dump.rdb\n"} {
		if !strings.Contains(string(ignored), left) {
			t.Errorf("%q is not ignored", left)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	code, out, err := command(t, "serve", "--check", "--config", "../../deploy/scheduler.example.yaml")
	if code != exitOK || out != "the configuration is valid\n" {
		t.Errorf(`%d %s %s; want code == %v, out == "the configuration is valid\n"`, code, out, err, exitOK)
	}
	code, _, err = command(t, "serve", "--check", "--redis-url", "redis://127.0.0.1:1/notadb")
	if code != exitConfig || !strings.Contains(err, `redis.url is not a Redis URL: invalid database number: "notadb"`) || !strings.Contains(err, "(from --redis-url)") {
		t.Errorf("%d %s; want code == %v, strings.Contains(err, `redis.url is not a Redis URL: invalid database number: \"notadb\"`), strings.Contains(err, \"(from --redis-url)\")", code, err, exitConfig)
	}
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("- {name: gpu-1, sha256: xx, nodes: [gpu-1]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, err = command(t, "serve", "--check", "--set", "gateway.tokens_file="+tokens)
	if code != exitConfig || !strings.Contains(err, "gateway.tokens_file "+tokens) || !strings.Contains(err, "sha256") {
		t.Errorf(`%d %s; want code == %v, strings.Contains(err, "gateway.tokens_file "+tokens), strings.Contains(err, "sha256")`, code, err, exitConfig)
	}
}

// TestCheckInsecure: what a later release refuses is valid today, in red. --strict refuses it.
func TestCheckInsecure(t *testing.T) {
	t.Parallel()
	open := []string{"serve", "--check", "--listen", ":7480", "--set", "tokens=[{token: 0123456789abcdef, tenant: a}]"}
	const line = `listen is ":7480", reachable from other machines without TLS`
	code, out, err := command(t, open...)
	if code != exitOK || out != "the configuration is valid\n" || !strings.HasPrefix(err, "insecure: "+line) {
		t.Errorf("code %d, output %q, errors %q, expected a valid configuration and a line that begins with insecure", code, out, err)
	}
	var red buffer
	run(open, &environment{ctx: t.Context(), out: io.Discard, err: &red, errTerminal: true, environ: []string{}})
	if !strings.HasPrefix(red.String(), "\x1b[31minsecure: ") {
		t.Errorf("a terminal gets %q, expected a red line", red.String())
	}
	code, out, err = command(t, append(open, "--strict")...)
	if code != exitConfig || out != "" || !strings.HasPrefix(err, line) {
		t.Errorf("strict: code %d, output %q, errors %q, expected a refusal", code, out, err)
	}
	if code, _, err = command(t, append(open, "--strict", "--set", "behind_proxy=true")...); code != exitOK || err != "" {
		t.Errorf("behind a proxy: code %d, errors %q, expected none", code, err)
	}
}

// TestCheckOfEachSection: what a start refuses without asking a server, --check refuses, and names.
func TestCheckOfEachSection(t *testing.T) {
	t.Parallel()
	for set, says := range map[string]string{
		"lists.servers={big: {url: example.com}}":                    "lists.servers.big.url is not a Redis URL",
		"lists.servers={big: {url: 'redis://a:1', max_bytes: -1}}":   "lists.servers.big.max_bytes is -1",
		"advertise=http://" + strings.Repeat("a.", 127) + "org:7480": "advertise is ",
	} {
		code, out, err := command(t, "serve", "--check", "--set", set)
		if code != exitConfig || !strings.Contains(err, says) {
			t.Errorf("--set %s: exit code %d, expected %d with %q\n%s%s", set, code, exitConfig, says, out, err)
		}
	}
}

// TestStartFailures: one line with advice, and exit code 1.
func TestStartFailures(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	weak := redistest.New(t)
	admin := weak.Client(t)
	for _, user := range []string{"weak"} {
		if err := admin.Do(t.Context(), admin.B().Arbitrary("ACL", "SETUSER", user, "on", ">x", "~*", "+@connection", "+info").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	old := redistest.New(t, redistest.Args("--maxmemory-policy", "allkeys-lru"))
	taken := listen(t)
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	web := server.Listener.Addr().String()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no redis": {
			[]string{"--exit-unreachable", "--redis-url", "redis://user:hidden@127.0.0.1:1"},
			"scheduler: redis at 127.0.0.1:1 cannot be used: dial tcp 127.0.0.1:1: connect: connection refused (redis.url in the configuration, or --redis-url)\n",
		},
		"several redis": {
			[]string{"--exit-unreachable", "--set", "redis.urls=redis://127.0.0.1:1,redis://127.0.0.1:2", "--set", "redis.cells=2"},
			"scheduler: redis at 127.0.0.1:1, 127.0.0.1:2 cannot be used: dial tcp 127.0.0.1:1: connect: connection refused\n" +
				"dial tcp 127.0.0.1:2: connect: connection refused (redis.urls in the configuration)\n",
		},
		"not redis": {
			[]string{"--redis-url", "redis://" + web},
			"scheduler: redis at " + web + " cannot be used: what answers there is not Redis, or expects TLS (rediss://): received unknown message type: 72 " +
				"(redis.url in the configuration, or --redis-url)\n",
		},
		"wrong password": {
			[]string{"--redis-url", strings.Replace(redis.URL(), "redis://", "redis://user:hidden@", 1)},
			"scheduler: redis at " + redis.Addrs()[0] + " cannot be used: WRONGPASS invalid username-password pair or user is disabled. (redis.url in the configuration, or --redis-url)\n",
		},
		"user without rights": {
			[]string{"--redis-url", "redis://weak:x@" + weak.Addrs()[0], "--set", "redis.key_prefix=scheduler"},
			`(Redis' user is weak; "schedctl acl --role replica --user weak --add" prints what it may lack (with --cluster on a cluster))`,
		},
		"evicting redis": {
			[]string{"--redis-url", old.URL()},
			"scheduler: redis at " + old.Addrs()[0] + " has maxmemory-policy allkeys-lru, which deletes jobs when memory runs short, expected noeviction: " +
				"run `redis-cli CONFIG SET maxmemory-policy noeviction` and put the same into redis.conf\n",
		},
		"taken port": {
			[]string{"--redis-url", redis.URL(), "--listen", taken, "--log-level", "info"}, // before anything is logged
			"scheduler: cannot listen on " + taken + ": bind: address already in use: stop what listens there, or choose another address with --listen (listen in the configuration)\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"serve", "--log-level", "error", "--listen", "127.0.0.1:0", "--set", "redis.key_prefix=" + redis.Prefix(t)}, c.args...)
			code, _, got := command(t, args...)
			if _, denied, ok := strings.Cut(got, " ("); ok && strings.Contains(got, "NOPERM") {
				got = strings.TrimSpace("(" + denied)
			}
			if code != exitFailure || got != c.want {
				t.Errorf("exit code %d\n got %s\nwant %s", code, got, c.want)
			}
		})
	}
}
