package embed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/embed"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// scheduler starts a replica with listeners beside what is embedded, and returns its address.
func (f *fleet) scheduler() (addr string) {
	f.t.Helper()
	cfg := config.DefaultReplica()
	cfg.Listen, cfg.Redis.URL, cfg.Redis.KeyPrefix = "127.0.0.1:0", f.cfg.RedisURL, f.cfg.KeyPrefix
	s := replica.New(cfg, zap.NewNop(), prometheus.NewRegistry())
	if err := s.Start(deadline(f.t)); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := s.Stop(deadline(f.t)); err != nil {
			f.t.Error(err)
		}
	})
	return s.Addr()
}

type handle interface {
	ID() string
	Position() int
	Assigned() <-chan struct{}
	Assignment() embed.Assignment
	Progress() <-chan freeslot.Progress
	Wait(ctx context.Context) (freeslot.JobStatus, error)
}

type submitter[H handle] interface {
	Submit(ctx context.Context, job freeslot.Job) (H, error)
	Run(ctx context.Context, job freeslot.Job) (freeslot.JobStatus, error)
	Cancel(ctx context.Context, jobID string) (freeslot.JobStatus, error)
	Attach(ctx context.Context, jobID string) (H, error)
}

// TestAsClient: a program does the same with a replica of its own as with a client.
func TestAsClient(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 100)
	r := f.start(nil)
	c, err := client.Dial(deadline(t), "ws://"+f.scheduler(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	t.Run("embed", func(t *testing.T) { use(t, r) })
	t.Run("client", func(t *testing.T) { use(t, c) })
}

func use[H handle](t *testing.T, s submitter[H]) {
	status, err := s.Run(deadline(t), freeslot.Job{Service: "reverse", Payload: json.RawMessage(`"stressed"`)})
	if err != nil || status.State != freeslot.StateSucceeded || string(status.Result) != `"desserts"` || status.Tenant != "default" || status.Service != "reverse" {
		t.Errorf("%+v, %v; want no error, status.State == freeslot.StateSucceeded, string(status.Result) == `\"desserts\"`, status.Tenant == \"default\", status.Service == \"reverse\"", status, err)
	}
	_, err = s.Submit(deadline(t), freeslot.Job{Service: "reverse", Priority: 100})
	if bad, ok := errors.AsType[*freeslot.Error](err); !ok || bad.Code != freeslot.CodeInvalidArgument || bad.Field != "job.priority" {
		t.Errorf("an invalid job gave %v", err)
	}
	_, err = s.Submit(deadline(t), freeslot.Job{Service: "unheard-of"})
	expectCode(t, err, freeslot.CodeNoMatchingNode)
	_, err = s.Submit(deadline(t), freeslot.Job{Service: "reverse", Payload: json.RawMessage(`"` + strings.Repeat("x", freeslot.DefaultMaxPayloadBytes) + `"`)})
	expectCode(t, err, freeslot.CodePayloadTooLarge)

	h, err := s.Submit(deadline(t), freeslot.Job{Service: "talk", IdempotencyKey: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	<-h.Assigned()
	if a := h.Assignment(); a.Node != "node-1" || a.Attempt != 1 || a.At.IsZero() || h.Position() != 0 {
		t.Errorf("assignment is %+v, position %d", a, h.Position())
	}
	if p := <-h.Progress(); p.Attempt != 1 || p.Seq != 1 || string(p.Value) != "[1,2]" {
		t.Errorf("progress is %+v", p)
	}
	again, err := s.Submit(deadline(t), freeslot.Job{Service: "talk", IdempotencyKey: t.Name()})
	if err != nil || handle(again) != handle(h) {
		t.Errorf("a repeated key gave %v, %v", again, err)
	}
	_, err = s.Submit(deadline(t), freeslot.Job{Service: "hold", IdempotencyKey: t.Name()})
	expectCode(t, err, freeslot.CodeConflict)
	if attached, err := s.Attach(deadline(t), h.ID()); err != nil || handle(attached) != handle(h) {
		t.Errorf("an attach to a job of one's own gave %v, %v", attached, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait returned %v", err)
	}
	if status, err := s.Cancel(deadline(t), h.ID()); err != nil || status.State != freeslot.StateCancelling {
		t.Errorf("cancel gave %+v, %v", status, err)
	}
	var waits sync.WaitGroup
	for range 3 {
		waits.Go(func() {
			if s, err := h.Wait(deadline(t)); err != nil || s.State != freeslot.StateCancelled || s.ID != h.ID() {
				t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelled, s.ID == h.ID()", s, err)
			}
		})
	}
	waits.Wait()
	if p, ok := <-h.Progress(); ok {
		t.Errorf("progress %+v after the end", p)
	}

	attached, err := s.Attach(deadline(t), h.ID())
	if err != nil || handle(attached) == handle(h) {
		t.Fatalf("an attach to an ended job gave %v, %v", attached, err)
	}
	if s, err := attached.Wait(deadline(t)); err != nil || s.State != freeslot.StateCancelled || attached.ID() != h.ID() {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelled, attached.ID() == h.ID()", s, err)
	}
	_, err = s.Attach(deadline(t), "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")
	expectCode(t, err, freeslot.CodeNotFound)
	_, err = s.Attach(deadline(t), "nonsense")
	expectCode(t, err, freeslot.CodeInvalidArgument)
	_, err = s.Cancel(deadline(t), "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")
	expectCode(t, err, freeslot.CodeNotFound)
	if _, err := s.Submit(ended, freeslot.Job{Service: "reverse"}); !errors.Is(err, context.Canceled) || freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		t.Errorf("a submit with an ended context gave %v", err)
	}
}

// TestSubmitBatch: more jobs than one call of the dispatcher takes, and some that are refused.
func TestSubmitBatch(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte("limits:\n  max_batch: 20\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newFleet(t, 100).start(func(c *embed.Config) { c.ConfigFile = file })
	jobs := make([]freeslot.Job, 50)
	for i := range jobs {
		jobs[i] = freeslot.Job{Service: "reverse", Payload: json.RawMessage(fmt.Sprintf("\"%d\"", 10_000+i))}
	}
	jobs[3].Slots, jobs[4].Service = -1, "unheard-of"
	results, err := r.SubmitBatch(deadline(t), jobs)
	if err != nil || len(results) != len(jobs) {
		t.Fatal(len(results), err)
	}
	ids := make(map[string]bool)
	for i, one := range results {
		if i == 3 || i == 4 {
			continue
		}
		if one.Err != nil {
			t.Fatal(i, one.Err)
		}
		ids[one.Handle.ID()] = true
		text := fmt.Sprint(10_000 + i)
		want := `"` + text[4:] + text[3:4] + text[2:3] + text[1:2] + text[:1] + `"`
		if s := wait(t, one.Handle); string(s.Result) != want {
			t.Fatalf("job %d: %+v", i, s)
		}
	}
	if len(ids) != len(jobs)-2 {
		t.Errorf("%d ids", len(ids))
	}
	if bad, ok := errors.AsType[*freeslot.Error](results[3].Err); !ok || bad.Field != "jobs[3].slots" {
		t.Error(results[3])
	}
	expectCode(t, results[4].Err, freeslot.CodeNoMatchingNode)
	_, err = r.SubmitBatch(deadline(t), nil)
	expectCode(t, err, freeslot.CodeInvalidArgument)
}

// TestOverloaded: what is outstanding is bounded, and there is room again once a job has ended.
func TestOverloaded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	r := f.start(func(c *embed.Config) { c.MaxOutstanding = 2 })
	results, err := r.SubmitBatch(deadline(t), []freeslot.Job{{Service: "hold"}, {Service: "hold"}, {Service: "hold"}})
	if err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Fatal(results, err)
	}
	if a, b := results[0].Handle.Position(), results[1].Handle.Position(); a+b != 1 {
		t.Errorf("positions %d and %d, expected that one job waits", a, b)
	}
	expectCode(t, results[2].Err, freeslot.CodeOverloaded)
	_, err = r.Submit(deadline(t), freeslot.Job{Service: "hold"})
	expectCode(t, err, freeslot.CodeOverloaded)
	_, err = r.Attach(deadline(t), "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")
	expectCode(t, err, freeslot.CodeOverloaded)
	f.release()
	wait(t, results[0].Handle)
	wait(t, results[1].Handle)
	wait(t, submit(t, r, freeslot.Job{Service: "hold"}))
}

// TestTenants: two replicas in one process, each for its own tenant: neither sees the
// other's jobs. They share a registerer by a label.
func TestTenants(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 10)
	reg := prometheus.NewRegistry()
	start := func(tenant string) *embed.Replica {
		return f.start(func(c *embed.Config) {
			c.Tenant, c.Registerer = tenant, prometheus.WrapRegistererWith(prometheus.Labels{"replica": tenant}, reg)
		})
	}
	a, b := start("a"), start("b")
	job := freeslot.Job{Service: "hold", IdempotencyKey: "same"}
	ha, hb := submit(t, a, job), submit(t, b, job)
	if ha.ID() == hb.ID() {
		t.Error("one job for both tenants")
	}
	_, err := b.Attach(deadline(t), ha.ID())
	expectCode(t, err, freeslot.CodeNotFound)
	_, err = b.Cancel(deadline(t), ha.ID())
	expectCode(t, err, freeslot.CodeNotFound)
	f.release()
	for tenant, h := range map[string]*embed.Handle{"a": ha, "b": hb} {
		if s := wait(t, h); s.Tenant != tenant || s.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want s.Tenant == %v, s.State == freeslot.StateSucceeded", s, tenant)
		}
	}
}
