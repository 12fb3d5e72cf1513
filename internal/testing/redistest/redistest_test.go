package redistest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// missingEnv makes the test binary run one test, whose failure another test reads.
const missingEnv = "FREESLOT_TEST_EXPECT_FAILURE"

func TestMain(m *testing.M) { Main(m) }

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustSet(t *testing.T, c rueidis.Client, key, value string) {
	t.Helper()
	if err := c.Do(deadline(t, startLimit), c.B().Set().Key(key).Value(value).Build()).Error(); err != nil {
		t.Fatalf("SET %s: %v; want no error", key, err)
	}
}

func mustGet(t *testing.T, c rueidis.Client, key, want string) {
	t.Helper()
	got, err := c.Do(deadline(t, startLimit), c.B().Get().Key(key).Build()).ToString()
	if err != nil || got != want {
		t.Fatalf("GET %s: got %q, %v; want %q", key, got, err, want)
	}
}

// TestFrugal: a benchmark measures the buffers and rings of production, which are rueidis' own.
func TestFrugal(t *testing.T) {
	t.Parallel()
	var test, bench rueidis.ClientOption
	frugal(t, &test)
	frugal(new(testing.B), &bench)
	if test.ReadBufferEachConn != connBuffer || test.RingScaleEachConn != connRing {
		t.Errorf("a test has buffers of %d bytes and rings of scale %d, expected %d and %d",
			test.ReadBufferEachConn, test.RingScaleEachConn, connBuffer, connRing)
	}
	if bench.ReadBufferEachConn != 0 || bench.WriteBufferEachConn != 0 || bench.RingScaleEachConn != 0 {
		t.Errorf("a benchmark has buffers of %d and %d bytes and rings of scale %d, expected none set",
			bench.ReadBufferEachConn, bench.WriteBufferEachConn, bench.RingScaleEachConn)
	}
}

func TestBackends(t *testing.T) {
	t.Parallel()
	var ran []string
	Backends(t, func(t *testing.T, redis *Target) {
		ran = append(ran, redis.Name())
		if redis.IsCluster() != (redis.Name() == "cluster") {
			t.Errorf("%s: IsCluster is %v", redis.Name(), redis.IsCluster())
		}
		c, prefix := redis.Client(t), redis.Prefix(t)
		for _, key := range []string{"-a", "-b", "-c", "-d", "-e", "-f"} {
			mustSet(t, c, prefix+key, key)
			mustGet(t, c, prefix+key, key)
		}
	})
	if got := strings.Join(ran, " "); got != "single cluster" {
		t.Errorf("ran on %q", got)
	}
}

// TestURL: the URL alone leads to the whole target.
func TestURL(t *testing.T) {
	t.Parallel()
	Backends(t, func(t *testing.T, redis *Target) {
		t.Parallel()
		opt, err := rueidis.ParseURL(redis.URL())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(opt.InitAddress, " "), strings.Join(redis.Addrs(), " "); got != want {
			t.Errorf("addresses are %s, want %s", got, want)
		}
		opt.DisableCache = true
		c, err := rueidis.NewClient(opt)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		mustSet(t, c, redis.Prefix(t), "value")
	})
}

func TestSharedIsShared(t *testing.T) {
	t.Parallel()
	for _, get := range []func(testing.TB) *Target{Shared, Cluster} {
		if first, second := get(t), get(t); first != second {
			t.Errorf("two calls, two servers: %v and %v", first.Addrs(), second.Addrs())
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[A-Za-z0-9-]+$`)
	t.Run("odd {name}:*/é", func(t *testing.T) {
		seen := make(map[string]bool)
		for range 1000 {
			p := Shared(t).Prefix(t)
			if !valid.MatchString(p) || seen[p] {
				t.Fatalf("prefix %q is not valid or not unique", p)
			}
			seen[p] = true
		}
	})
}

// TestClusterOK asks every master, because each has its own view.
func TestClusterOK(t *testing.T) {
	t.Parallel()
	redis := Cluster(t)
	if n := len(redis.Addrs()); n != masters {
		t.Fatalf("%d masters", n)
	}
	for _, addr := range redis.Addrs() {
		c := At("node", false, addr).Client(t)
		info, err := c.Do(deadline(t, startLimit), c.B().ClusterInfo().Build()).ToString()
		if err != nil || !formed(info) {
			t.Errorf("%s: %v\n%s; want no error, formed(info)", addr, err, info)
		}
	}
}

func TestClusterScripts(t *testing.T) {
	t.Parallel()
	redis := Cluster(t)
	c, prefix := redis.Client(t), redis.Prefix(t)
	script := rueidis.NewLuaScript(`redis.call('SET', KEYS[1], ARGV[1]); return redis.call('INCR', KEYS[2])`)
	for _, tag := range []string{"{a}", "{b}", "{c}", "{d}"} {
		keys := []string{prefix + tag + "k", prefix + tag + "n"}
		if n, err := script.Exec(deadline(t, startLimit), c, keys, []string{"v"}).ToInt64(); err != nil || n != 1 {
			t.Errorf("%s: %d, %v; want no error, n == 1", tag, n, err)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	redis := New(t, AppendOnly("always"))
	c := redis.Client(t)
	mustSet(t, c, "key", "value")
	redis.Kill()
	if err := c.Do(deadline(t, 100*time.Millisecond), c.B().Get().Key("key").Build()).Error(); err == nil {
		t.Error("a killed server answered")
	}
	redis.Restart()
	mustGet(t, c, "key", "value")
}

func TestPause(t *testing.T) {
	t.Parallel()
	redis := New(t)
	c := redis.Client(t)
	mustSet(t, c, "key", "value")
	redis.Pause()
	err := c.Do(deadline(t, 50*time.Millisecond), c.B().Get().Key("key").Build()).Error()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server: %v", err)
	}
	redis.Resume()
	mustGet(t, c, "key", "value")
}

func TestStop(t *testing.T) {
	t.Parallel()
	redis := New(t)
	redis.Stop()
	redis.Stop()
	if redis.Process().PID() != 0 {
		t.Error("it still runs")
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	redis := New(t)
	_, err := startServer(func(c *redisserver.Config) { c.Port = redis.Process().Port() })
	if !errors.Is(err, redisserver.ErrPortTaken) {
		t.Errorf("got %v", err)
	}
}

func TestNewClusterKill(t *testing.T) {
	t.Parallel()
	redis := NewCluster(t)
	c := redis.Client(t)
	mustSet(t, c, "key", "value")
	if err := redis.Processes()[0].Kill(); err != nil {
		t.Error(err)
	}
}

// TestMissingServer runs this binary again without a redis-server: the test fails, with the command
// that installs one.
func TestMissingServer(t *testing.T) {
	t.Parallel()
	if os.Getenv(missingEnv) != "" {
		Shared(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMissingServer$", "-test.v")
	cmd.Env = append(os.Environ(), missingEnv+"=1", BinaryEnv+"=/no/such/redis-server")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL") || !strings.Contains(string(out), "make deps") {
		t.Errorf("%v\n%s; want an error, strings.Contains(string(out), \"--- FAIL\"), strings.Contains(string(out), \"make deps\")", err, out)
	}
}
