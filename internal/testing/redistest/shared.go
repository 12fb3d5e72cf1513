package redistest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// lateClose is the function in which rueidis' cluster client closes connections to masters that it
// no longer uses: its goroutine first sleeps for five seconds, even when the client was closed
// meanwhile.
const lateClose = "github.com/redis/rueidis.(*clusterClient)._refresh.func2"

// shared holds the servers of one test binary. It is package state because TestMain and the tests
// have nothing else in common.
var shared struct {
	mu      sync.Mutex
	main    bool // guarded by mu: Main will stop what is started
	single  lazy
	cluster lazy
}

// lateRefresh is the function in which rueidis' cluster client waits for up to a second before it
// asks for the topology, even when the client was closed meanwhile.
const lateRefresh = "github.com/redis/rueidis.(*call).DelayDo.func1"

// lazy is a Redis that its first user starts; guarded by shared.mu. A failed start is not tried
// again, so that every test fails at once with the same message.
type lazy struct {
	target *Target
	err    error
	stop   func() error
}

// Main is the body of TestMain: it runs the tests, stops the shared servers, looks for leaked
// goroutines, and ends the process.
func Main(m *testing.M, options ...goleak.Option) {
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()

	code := m.Run()
	err := stopShared()
	if code == 0 && !fuzzing() {
		options = append(options, goleak.IgnoreAnyFunction(lateClose), goleak.IgnoreAnyFunction(lateRefresh))
		err = errors.Join(err, goleak.Find(options...))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Shared returns the server that the tests of this binary share. They must not flush, stop or
// reconfigure it.
func Shared(tb testing.TB) *Target {
	tb.Helper()
	return get(tb, &shared.single, func() (*Target, func() error, error) {
		proc, err := startServer()
		if err != nil {
			return nil, nil, err
		}
		return own("single", false, proc.Addr()), func() error { return stopServer(proc) }, nil
	})
}

// Cluster returns the cluster of three masters that the tests of this binary share. The first call
// takes about three seconds. The tests must not flush, stop or reconfigure it.
func Cluster(tb testing.TB) *Target {
	tb.Helper()
	return get(tb, &shared.cluster, func() (*Target, func() error, error) {
		nodes, err := startCluster()
		if err != nil {
			return nil, nil, err
		}
		return nodes.target(), nodes.stop, nil
	})
}

// Backends runs a suite as the subtests single and cluster, on the shared server and cluster.
func Backends(t *testing.T, suite func(t *testing.T, redis *Target)) {
	t.Helper()
	t.Run("single", func(t *testing.T) { suite(t, Shared(t)) })
	t.Run("cluster", func(t *testing.T) { suite(t, Cluster(t)) })
}

func get(tb testing.TB, l *lazy, start func() (*Target, func() error, error)) *Target {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.main {
		tb.Fatal("shared servers need: func TestMain(m *testing.M) { redistest.Main(m) }")
	}
	if l.target == nil && l.err == nil {
		l.target, l.stop, l.err = start()
	}
	if l.err != nil {
		tb.Fatal(explain(l.err))
	}
	return l.target
}

func stopShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, l := range []*lazy{&shared.single, &shared.cluster} {
		if l.stop != nil {
			errs = append(errs, l.stop())
		}
		*l = lazy{}
	}
	return errors.Join(errs...)
}

// fuzzing is true in the coordinator and in the workers of go test -fuzz, whose engine keeps
// goroutines.
func fuzzing() bool {
	for name, off := range map[string]string{"test.fuzz": "", "test.fuzzworker": "false"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != off {
			return true
		}
	}
	return false
}
