package events

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestScriptsPublishThis holds the codec against what the scripts really send:
// one event for each revision, in its canonical form, and nothing else.
func TestScriptsPublishThis(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		layout := cell.Layout{Prefix: redis.Prefix(t)}
		if redis.IsCluster() {
			layout.Tag = "c0"
		}
		c, err := cell.New(cell.Config{Layout: layout}, redis.Client(t), zaptest.NewLogger(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		start(t, c)
		sub := NewSubscriber(redis.Client(t), layout.NodeEvents(), false, zaptest.NewLogger(t))
		start(t, sub)
		receive(t, sub.Resets())

		ctx := t.Context()
		node := freeslot.Node{
			ID: "node-1", MaxConcurrency: 2, Services: []freeslot.Service{{Name: "echo", Version: "1.2"}},
			Labels: map[string]string{"text": `with "quotes", spaces and ünïcödé %s %%`},
		}
		body := string(must(json.Marshal(node)))
		begin := time.Now().Add(-time.Minute).UnixMilli()
		var revision uint64
		// expect takes the next event; fields that are not given are not looked at.
		expect := func(want Event) {
			t.Helper()
			message := receive(t, sub.Messages())
			got, err := Decode(message)
			if err != nil {
				t.Fatalf("%q: %v; want no error", message, err)
			}
			if canonical := string(got.Append(nil)); canonical != message {
				t.Errorf("the script sent %q, Append makes %q", message, canonical)
			}
			revision++
			want.Revision, want.Node = revision, node.ID
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Event{}, "AtMS")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if got.AtMS < begin || got.AtMS > begin+10*60*1000 {
				t.Errorf("time is %d", got.AtMS)
			}
		}
		submit := func() string {
			t.Helper()
			s := cell.Submission{
				JobID: cell.NewJobID(0), Tenant: "acme", Candidates: []string{node.ID},
				Job: &freeslot.Job{Service: "echo"},
			}
			if p, err := c.Submit(ctx, s); err != nil || !p.Assigned {
				t.Fatalf("submit: %+v, %v", p, err)
			}
			return s.JobID
		}

		register := func(epoch string) {
			t.Helper()
			if _, err := c.Register(ctx, node, epoch); err != nil {
				t.Fatal(err)
			}
		}
		register("e1")
		expect(Event{Kind: Register, Epoch: "e1", Status: "online", MaxConcurrency: 2, Body: body})
		register("e1") // the same registration again publishes nothing

		heartbeat := func(hb cell.Heartbeat) {
			t.Helper()
			if _, err := c.Heartbeat(ctx, hb); err != nil {
				t.Fatal(err)
			}
		}
		heartbeat(cell.Heartbeat{Node: node.ID, Epoch: "e1", Resources: json.RawMessage(`{"cpu": 0.5, "note":"a b"}`)})
		expect(Event{Kind: Heartbeat, Epoch: "e1", Status: "online", Body: `{"cpu": 0.5, "note":"a b"}`})
		heartbeat(cell.Heartbeat{Node: node.ID, Epoch: "e1"}) // a sign of life alone
		expect(Event{Kind: Heartbeat, Epoch: "e1", Status: "online"})

		first := submit() // one of two slots: no event
		submit()
		expect(Event{Kind: SlotFull, Epoch: "e1", Status: "online", MaxConcurrency: 2, Used: 2})

		out, err := c.Complete(ctx, cell.Completion{
			Node: node.ID, Epoch: "e1", Attempt: cell.Attempt{Job: first, N: 1}, State: freeslot.StateSucceeded,
		})
		if err != nil || out != cell.Completed {
			t.Fatalf("complete: %v, %v", out, err)
		}
		expect(Event{Kind: SlotFree, Epoch: "e1", Status: "online", MaxConcurrency: 2, Used: 1})

		heartbeat(cell.Heartbeat{Node: node.ID, Epoch: "e1", Status: freeslot.StatusDraining})
		expect(Event{Kind: Heartbeat, Epoch: "e1", Status: "draining", Used: 1})

		node.MaxConcurrency = 3
		body = string(must(json.Marshal(node)))
		register("e1") // another profile, the same epoch: used and status stay
		expect(Event{Kind: Register, Epoch: "e1", Status: "draining", MaxConcurrency: 3, Used: 1, Body: body})
		register("e2") // takes the node over
		expect(Event{Kind: Register, Epoch: "e2", Status: "online", MaxConcurrency: 3, Body: body})

		if _, err := c.Deregister(ctx, node.ID, "e2"); err != nil {
			t.Fatal(err)
		}
		expect(Event{Kind: Offline, Epoch: "e2", Status: "offline", Body: Left})
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
