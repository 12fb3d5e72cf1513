package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// asSchedctl has the test binary run as schedctl.
const asSchedctl = "FREESLOT_TEST_SCHEDCTL"

// What connects to Redis by itself has the rights of an importer; what the tests need around it may
// do anything.
func TestMain(m *testing.M) {
	if os.Getenv(asSchedctl) != "" {
		main()
		return
	}
	acltest.Main(m, script.RoleImporter, cell.Access, lock.Access, audit.Access)
}

// live is a replica on a real Redis with one node: "echo" returns its payload,
// "fail" fails, "block" lasts until release, and so does "talk", which tells its payload.
type live struct {
	url, prefix string // of the store
	server      *replica.Replica
	release     chan struct{}
	started     chan struct{} // gets one for each "block" that began
}

func start(t *testing.T, tokens ...config.Token) *live {
	t.Helper()
	return startWith(t, func(c *config.Replica) { c.Tokens = tokens })
}

func startWith(t *testing.T, change func(*config.Replica)) *live {
	t.Helper()
	return startOn(t, redistest.Shared(t), change)
}

// startOn starts a replica and its node on this Redis.
func startOn(t *testing.T, redis *redistest.Target, change func(*config.Replica)) *live {
	t.Helper()
	l := &live{
		url: redis.AdminURL(), prefix: redis.Prefix(t), release: make(chan struct{}), started: make(chan struct{}, 16),
	}
	redis.Age(t, l.prefix+":version:nodes")
	cfg := config.DefaultReplica()
	cfg.Listen, cfg.ReplicaID = "127.0.0.1:0", "r1"
	cfg.Lists.Dir = t.TempDir()
	// A busy machine may take longer than the default.
	cfg.Cache.VersionCheckTimeout = 10 * time.Second
	cfg.DrainTimeout = 4 * time.Millisecond // of which a quarter is for sessions to go by themselves
	cfg.Redis.URL, cfg.Redis.KeyPrefix, cfg.Locks.KeyPrefix = l.url, l.prefix, l.prefix
	cfg.Registry.V1 = config.RegistryV1{Enabled: true, KeyPrefix: l.prefix + ":old"}
	change(&cfg)
	l.server = replica.New(cfg, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), prometheus.NewRegistry())
	w := l.worker(t, l.url, l.prefix)
	must(t, l.server.Start(t.Context())) // loads the node, which has registered
	t.Cleanup(func() {
		ctx := waittest.Context(t)
		ended, end := context.WithCancel(context.Background())
		end()
		_ = w.Stop(ended)
		if err := l.server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *live) worker(t *testing.T, url, prefix string) *worker.Worker {
	t.Helper()
	w, err := worker.New(worker.Config{
		RedisURL: url, KeyPrefix: prefix, InterruptGrace: time.Second,
		Node: freeslot.Node{
			ID: "node-1", MaxConcurrency: 4, Labels: map[string]string{"gpu": "a100", "zone": "eu"},
			Languages: freeslot.Languages{ASR: []string{"en"}, TTS: []string{"de", "fr"}},
		},
	})
	must(t, err)
	w.Handle("echo", func(_ context.Context, job *worker.Job) (any, error) { return job.Payload, nil })
	w.Handle("fail", func(context.Context, *worker.Job) (any, error) { return nil, errors.New("no \x1b[31mvoice") })
	w.Handle("block", func(ctx context.Context, _ *worker.Job) (any, error) {
		l.started <- struct{}{}
		select {
		case <-l.release:
			return "released", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	w.Handle("talk", func(ctx context.Context, job *worker.Job) (any, error) {
		if err := job.Progress(job.Payload); err != nil {
			return nil, err
		}
		select {
		case <-l.release:
			return "released", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	must(t, w.Start(t.Context()))
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// buffer is written to by a command and read by the test. Each write is told.
type buffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written != nil {
		select {
		case b.written <- struct{}{}:
		default:
		}
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// result is what a command did.
type result struct {
	code     int
	out, err string
}

// ctl runs one command against the server.
func (l *live) ctl(t *testing.T, args ...string) result {
	t.Helper()
	return command(t, "", append([]string{"--server", l.server.Addr()}, args...)...)
}

func command(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr buffer
	ctx := waittest.Context(t)
	code := run(args, &environment{ctx: ctx, in: strings.NewReader(stdin), out: &stdout, err: &stderr})
	return result{code, stdout.String(), stderr.String()}
}

// expect checks the exit code, and that parts are in what the command wrote.
func (r result) expect(t *testing.T, code int, parts ...string) result {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code is %d, expected %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, part := range parts {
		if !strings.Contains(r.out+r.err, part) {
			t.Errorf("no %q in\n%s%s", part, r.out, r.err)
		}
	}
	return r
}

func soon[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	return waittest.Receive(t, what, ch)
}
