package locked

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// results is a client that waits for the results of its jobs.
type results chan freeslot.JobStatus

func (r results) Assigned(dispatch.Assignment)       {}
func (r results) Result(status freeslot.JobStatus)   { r <- status }
func (r results) Detached(string)                    {}
func (r results) Progress(string, freeslot.Progress) {}

// TestAdapter: jobs find their nodes through a State that mirrors the cache, from submit to result,
// and the answer to a job without a node has the reasons.
func TestAdapter(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	log := zaptest.NewLogger(t)
	subscriber, err := redisclient.Subscriber(redisclient.Config{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(subscriber.Close)
	cl, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: redis.Prefix(t)}, HeartbeatLimit: time.Minute}, redis.Client(t), log, nil)
	if err != nil {
		t.Fatal(err)
	}
	state := New(Config{})
	feed := cache.Feed{Source: cl, Events: events.NewSubscriber(subscriber, cl.Layout().NodeEvents(), false, log)}
	c := cache.New(cache.Config{Mirror: state}, []cache.Feed{feed}, log, nil)
	d, err := dispatch.New(dispatch.Config{Replica: "r1"}, cell.NewSet(cl), NewAdapter(c, state), log, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*waittest.Limit)
	t.Cleanup(cancel)
	redis.Age(t, cl.Layout().Version())
	epoch := cell.NewEpoch()
	if _, err := cl.Register(ctx, online("n1", 1).Node, epoch); err != nil {
		t.Fatal(err)
	}
	for _, s := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{cl, c, d} {
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	sink := make(results, 1)
	submit := func(job *freeslot.Job) (id string, err error) {
		d.Submit(ctx, []dispatch.Request{{Tenant: "t", Job: job}}, sink, func(_ int, a dispatch.Accepted, failure error) { id, err = a.JobID, failure })
		return id, err
	}
	id, err := submit(&freeslot.Job{Service: "tts"})
	if err != nil {
		t.Fatal(err)
	}
	if node, _ := state.Node("n1"); func() int { used, _ := node.Load(); return used }() != 1 {
		t.Error("the placement did not reach the copy that is chosen from")
	}
	var refusal *freeslot.Error
	waiting, err := submit(&freeslot.Job{Service: "tts"})
	if err != nil {
		t.Errorf("a full fleet gives %v", err)
	}
	if s, err := d.Cancel(ctx, "t", waiting); err != nil || s.State != freeslot.StateCancelled {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelled", s, err)
	}
	if s := <-sink; s.ID != waiting {
		t.Errorf("%+v; want s.ID == %v", s, waiting)
	}
	if _, err := submit(&freeslot.Job{Service: "ocr"}); !errors.As(err, &refusal) || refusal.Code != freeslot.CodeNoMatchingNode || refusal.Breakdown["service"] != 1 {
		t.Errorf("a fleet that cannot gives %v", err)
	}
	done := cell.Completion{Node: "n1", Epoch: epoch, Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateSucceeded, Result: json.RawMessage(`"done"`)}
	if outcome, err := cl.Complete(ctx, done); err != nil || outcome != cell.Completed {
		t.Fatal(outcome, err)
	}
	select {
	case status := <-sink:
		if status.ID != id || status.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want status.ID == %v, status.State == freeslot.StateSucceeded", status, id)
		}
	case <-ctx.Done():
		t.Fatal("no result")
	}
	// An event reaches the one before the other.
	var difference any
	waittest.Until(t, "the same in both", func() bool {
		d := Compare(c.States(), state.States())
		difference = d
		return d == nil
	}, func() any { return difference })
}
