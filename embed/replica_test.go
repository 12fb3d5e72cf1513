package embed_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/embed"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte("retention: 1ms\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]embed.Config{
		"tenant":                     {Tenant: "no spaces"},
		"redis_url":                  {RedisURL: "http://127.0.0.1"},
		"redis_urls":                 {RedisURLs: []string{"redis://a:1", "redis://b:1"}, Cells: 1},
		"cells":                      {Cells: 1000},
		"key_prefix":                 {KeyPrefix: "{}"},
		"heartbeat_limit":            {HeartbeatLimit: time.Second},
		"max_outstanding":            {MaxOutstanding: -1},
		"drain_timeout":              {DrainTimeout: -time.Second},
		`probes["tcp"]`:              {Probes: map[string]embed.Probe{"tcp": probe}},
		`probes["no spaces"]`:        {Probes: map[string]embed.Probe{"no spaces": probe}},
		`probes["mine"]`:             {Probes: map[string]embed.Probe{"mine": nil}},
		"replica_id":                 {ReplicaID: "no spaces"},
		"retention (" + file + ":1)": {ConfigFile: file},
		"redis_access.ca_file":       {RedisURL: "rediss://127.0.0.1:1", RedisAccess: embed.RedisAccess{CAFile: "nowhere"}},
	} {
		_, err := embed.New(cfg)
		bad, ok := errors.AsType[*freeslot.Error](err)
		if !ok || bad.Code != freeslot.CodeInvalidArgument || bad.Field != want || !strings.HasPrefix(bad.Message, want+" ") || !strings.Contains(bad.Message, "expected") && want != "redis_access.ca_file" {
			t.Errorf(`%s: %v; want ok, bad.Code == freeslot.CodeInvalidArgument, bad.Field == %v, strings.HasPrefix(bad.Message, want+" "), strings.Contains(bad.Message, "expected") or want == "redis_access.ca_file"`, want, err, want)
		}
	}
}

// TestStartError: nothing is left running, which the end of all tests checks, and the replica can
// be started again.
func TestStartError(t *testing.T) {
	t.Parallel()
	nowhere, err := embed.New(embed.Config{RedisURL: "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	err = nowhere.Start(deadline(t))
	expectCode(t, err, freeslot.CodeUnavailable)
	if !strings.Contains(err.Error(), "redis at 127.0.0.1:1 cannot be used") || !strings.Contains(err.Error(), "(redis_url or redis_urls)") {
		t.Error(err)
	}

	cfg, reg := newFleet(t, 1).cfg, prometheus.NewRegistry()
	cfg.Registerer = reg
	r, err := embed.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Submit(deadline(t), freeslot.Job{Service: "reverse"})
	expectCode(t, err, freeslot.CodeUnavailable)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expectCode(t, r.Start(ended), freeslot.CodeUnavailable)
	taken := prometheus.NewCounter(prometheus.CounterOpts{Name: "freeslot_cache_bad_events_total", Help: "Node events that could not be read."})
	reg.MustRegister(taken)
	expectCode(t, r.Start(deadline(t)), freeslot.CodeInvalidArgument)
	reg.Unregister(taken)
	if err := r.Start(deadline(t)); err != nil {
		t.Fatal(err)
	}
	expectCode(t, r.Start(deadline(t)), freeslot.CodeConflict)
	if found, err := reg.Gather(); err != nil || len(found) < 20 {
		t.Errorf("%d metrics while it runs, %v", len(found), err)
	}
	if err := r.Stop(deadline(t)); err != nil {
		t.Error(err)
	}
	if found, err := reg.Gather(); err != nil || len(found) > 0 {
		t.Errorf("%d metrics are left, %v", len(found), err)
	}
	if err := r.Stop(deadline(t)); err != nil {
		t.Error(err)
	}
	if err := r.Start(deadline(t)); !errors.Is(err, embed.ErrClosed) {
		t.Errorf("a start after the stop gave %v", err)
	}
	if err := nowhere.Stop(deadline(t)); err != nil { // which never started
		t.Error(err)
	}
}

// TestNoTemporaryFolder: a replica needs no disk.
func TestNoTemporaryFolder(t *testing.T) {
	f := newFleet(t, 1)
	t.Setenv("TMPDIR", filepath.Join(os.DevNull, "nowhere"))
	if s := wait(t, submit(t, f.start(nil), freeslot.Job{Service: "reverse", Payload: json.RawMessage(`"ab"`)})); string(s.Result) != `"ba"` {
		t.Errorf("%+v; want string(s.Result) == `\"ba\"`", s)
	}
}

// TestAnotherHeartbeatLimit: a replica that would take out the healthy nodes of a patient fleet
// does not start, and leaves nothing behind. One with the limit of the others does.
func TestAnotherHeartbeatLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.start(func(c *embed.Config) {
		c.ReplicaID, c.HeartbeatInterval, c.HeartbeatLimit = "patient", 10*time.Second, 30*time.Second
	})
	cfg := f.cfg
	cfg.ReplicaID = "hasty"
	r, err := embed.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = r.Start(deadline(t))
	bad, ok := errors.AsType[*freeslot.Error](err)
	if !ok || bad.Code != freeslot.CodeConflict || bad.Field != "heartbeat_limit" || !strings.HasPrefix(bad.Message, "heartbeat_limit is 8s here and 30s at patient") {
		t.Fatalf("a start with another limit gave %v", err)
	}
	f.start(func(c *embed.Config) { c.HeartbeatInterval, c.HeartbeatLimit = 10*time.Second, 30*time.Second })
}

// TestStopDrains: Stop takes no more jobs, and waits for the results of those that are out and come
// here.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	r := f.start(func(c *embed.Config) { c.DrainTimeout = patience })
	h, lost := submit(t, r, freeslot.Job{Service: "hold"}), submit(t, r, freeslot.Job{Service: "hold"})
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(deadline(t)) }()
	if err := redistest.Await(func(ctx context.Context) bool {
		_, err := r.SubmitBatch(ctx, []freeslot.Job{{Service: "reverse"}})
		return errors.Is(err, embed.ErrClosed)
	}); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"submit": func() error { _, err := r.Submit(deadline(t), freeslot.Job{Service: "reverse"}); return err },
		"attach": func() error { _, err := r.Attach(deadline(t), h.ID()); return err },
		"cancel": func() error { _, err := r.Cancel(deadline(t), h.ID()); return err },
	} {
		if err := call(); !errors.Is(err, embed.ErrClosed) {
			t.Errorf("%s while it stops gave %v", name, err)
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("Stop returned %v although a job is out", err)
	default:
	}
	if _, err := f.start(nil).Attach(deadline(t), lost.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := lost.Wait(deadline(t)); !errors.Is(err, embed.ErrClosed) {
		t.Errorf("a job that went elsewhere while it stops gave %v", err)
	}
	f.release()
	if s := wait(t, h); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestTakenOver: the jobs of a replica that has stopped go on. Another one, embedded or not, gets
// their results, by their ids or by their keys, and no job runs twice.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	// It logs nothing, because what is cut off may log after the test.
	first, second := f.start(func(c *embed.Config) { c.Logger = zap.NewNop() }), f.start(nil)
	scheduler := f.scheduler()
	keyed := freeslot.Job{Service: "hold", IdempotencyKey: "k"}
	byID, byKey, byHTTP := submit(t, first, freeslot.Job{Service: "hold"}), submit(t, first, keyed), submit(t, first, freeslot.Job{Service: "hold"})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = first.Stop(ended) // at once, and so incomplete
	if _, err := byID.Wait(deadline(t)); !errors.Is(err, embed.ErrClosed) {
		t.Errorf("Wait after the stop gave %v", err)
	}
	attached, err := second.Attach(deadline(t), byID.ID())
	if err != nil {
		t.Fatal(err)
	}
	if again := submit(t, second, keyed); again.ID() != byKey.ID() {
		t.Error("the key made a second job")
	} else {
		defer func() {
			if s := wait(t, again); s.State != freeslot.StateSucceeded || s.Attempt != 1 {
				t.Errorf("%+v; want s.State == freeslot.StateSucceeded, s.Attempt == 1", s)
			}
		}()
	}
	f.release()
	if s := wait(t, attached); s.State != freeslot.StateSucceeded || s.Attempt != 1 || string(s.Result) != `"released"` {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded, s.Attempt == 1, string(s.Result) == `\"released\"`", s)
	}
	if err := redistest.Await(func(context.Context) bool {
		resp, err := http.Get("http://" + scheduler + "/v1/jobs/" + byHTTP.ID())
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var s freeslot.JobStatus
		return json.NewDecoder(resp.Body).Decode(&s) == nil && s.State == freeslot.StateSucceeded
	}); err != nil {
		t.Error(err)
	}
}

// TestDetached: whoever attaches last gets the result.
func TestDetached(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	first, second := f.start(nil), f.start(nil)
	h := submit(t, first, freeslot.Job{Service: "hold"})
	attached, err := second.Attach(deadline(t), h.ID())
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(deadline(t))
	expectCode(t, err, freeslot.CodeUnavailable)
	if a := attached.Assignment(); a.Node != "node-1" || a.Attempt != 1 {
		t.Errorf(`%+v; want a.Node == "node-1", a.Attempt == 1`, a)
	}
	f.release()
	if s := wait(t, attached); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
}

// again repeats a call for which Redis had no time on a busy machine.
func again[T any](t *testing.T, call func() (T, error)) (v T) {
	var err error
	waittest.Until(t, "an answer", func() bool {
		v, err = call()
		return freeslot.CodeOf(err) != freeslot.CodeUnavailable
	}, func() any { return err })
	if err != nil {
		t.Error(err)
	}
	return v
}

// TestManyAttaches: attaches to one job that go on at once have one handle, also beside submits of
// its key, and when the job goes back and forth between two replicas the last one has it.
func TestManyAttaches(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	first, second := f.start(nil), f.start(nil)
	job := freeslot.Job{Service: "hold", IdempotencyKey: "k"}
	submitted := submit(t, first, job)
	id := submitted.ID()
	var calls sync.WaitGroup
	handles := make([]*embed.Handle, 40)
	for i := range handles {
		calls.Go(func() {
			handles[i] = again(t, func() (*embed.Handle, error) {
				if i%4 == 0 {
					return second.Submit(deadline(t), job)
				}
				return second.Attach(deadline(t), id)
			})
			if handles[i] == nil || handles[i].ID() != id {
				t.Errorf("call %d: %v", i, handles[i])
			}
		})
	}
	calls.Wait()
	for i, h := range handles {
		if h != handles[0] {
			t.Fatalf("call %d has a handle of its own", i)
		}
	}
	// Until the first replica has heard that it lost the job, an Attach there joins this handle.
	_, err := submitted.Wait(deadline(t))
	expectCode(t, err, freeslot.CodeUnavailable)
	back := again(t, func() (*embed.Handle, error) { return first.Attach(deadline(t), id) })
	_, err = handles[0].Wait(deadline(t))
	expectCode(t, err, freeslot.CodeUnavailable)
	f.release()
	if s := wait(t, back); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
}

// TestFullReplica: without any scheduler, an embedded replica takes out a silent node; beside one,
// a pause is in force there too once it is confirmed.
func TestFullReplica(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	r := f.start(func(c *embed.Config) { c.HeartbeatInterval, c.HeartbeatLimit = 500*time.Millisecond, time.Second })
	f.registerSilent("silent", "never", time.Second)
	var h *embed.Handle
	if err := redistest.Await(func(ctx context.Context) (ok bool) {
		var err error
		h, err = r.Submit(ctx, freeslot.Job{Service: "never", MaxAttempts: 1})
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	if s := wait(t, h); s.State != freeslot.StateDead || s.Error == nil || s.Error.Code != freeslot.JobErrorNodeLost {
		t.Errorf("%+v; want s.State == freeslot.StateDead, s.Error != nil, s.Error.Code == freeslot.JobErrorNodeLost", s)
	}

	scheduler := f.scheduler()
	post := func(path string) string {
		resp, err := http.Post("http://"+scheduler+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct {
			Confirmed bool `json:"confirmed"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, err)
		}
		if answer.Confirmed {
			return "confirmed"
		}
		return resp.Status
	}
	if got := post("/v1/services/reverse/pause"); got != "confirmed" {
		t.Error(got)
	}
	waits := submit(t, r, freeslot.Job{Service: "reverse", Payload: json.RawMessage(`"ab"`)})
	if waits.Position() != 1 {
		t.Errorf("position %d of a job of a paused service", waits.Position())
	}
	post("/v1/services/reverse/resume")
	if s := wait(t, waits); string(s.Result) != `"ba"` {
		t.Errorf("%+v; want string(s.Result) == `\"ba\"`", s)
	}
}

// registerSilent adds a node that sends no heartbeats.
func (f *fleet) registerSilent(id, service string, limit time.Duration) {
	f.t.Helper()
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: f.cfg.KeyPrefix}, HeartbeatLimit: limit}, redistest.Shared(f.t).Client(f.t), zap.NewNop(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := c.Start(deadline(f.t)); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Stop(deadline(f.t)) })
	node := freeslot.Node{ID: id, MaxConcurrency: 1, Services: []freeslot.Service{{Name: service}}}
	if _, err := c.Register(deadline(f.t), node, cell.NewEpoch()); err != nil {
		f.t.Fatal(err)
	}
}

// probe is a check that finds everything well.
func probe(context.Context, func(ctx context.Context, network, address string) (net.Conn, error), string, string) error {
	return nil
}
