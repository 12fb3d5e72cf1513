package cell

import (
	"context"
	"encoding/json"
	"flag"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

func TestMain(m *testing.M) {
	if raced {
		_ = flag.Set("rapid.checks", "30") // a flag of the command line comes after this
	}
	streamTTL = time.Hour
	acltest.Main(m, script.RoleReplica, Access)
}

// open starts a cell with keys of its own on redis.
func open(t *testing.T, redis *redistest.Target, change ...func(*Config)) *Cell {
	t.Helper()
	cfg := Config{Layout: Layouts(redis.Prefix(t), 1, redis.IsCluster())[0], HeartbeatLimit: time.Hour}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg, redis.RoleClient(t), zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func testNode(id string, slots int) freeslot.Node {
	return freeslot.Node{ID: id, MaxConcurrency: slots, Services: []freeslot.Service{{Name: "echo"}}}
}

func testJob() *freeslot.Job {
	return &freeslot.Job{Service: "echo", Payload: json.RawMessage(`{"n":1}`)}
}

func submission(replica string, nodes ...string) Submission {
	return Submission{JobID: NewJobID(0), Tenant: "acme", Job: testJob(), Candidates: nodes, ReplyTo: replica}
}

func TestLifeOfAJob(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		ctx := t.Context()
		c := open(t, redis)
		if err := c.OpenReplies(ctx, "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := NewEpoch()
		if _, err := c.Register(ctx, testNode("n1", 1), epoch); err != nil {
			t.Fatal(err)
		}
		s := submission("r1", "n1")
		p, err := c.Submit(ctx, s)
		if err != nil || !p.Assigned || p.Node != "n1" || p.Attempt != 1 || p.Used != 1 {
			t.Fatalf("submit: %+v, %v", p, err)
		}
		second, err := c.Submit(ctx, submission("r1", "n1"))
		if err != nil || second.Assigned || len(second.Refusals) != 1 || second.Refusals[0].Reason != RefusedFull {
			t.Fatalf("submit to a full node: %+v, %v", second, err)
		}
		ds, err := c.Dispatches(ctx, "n1", "", time.Second, 10)
		if err != nil || len(ds) != 1 || ds[0].Attempt != (Attempt{s.JobID, 1}) || string(ds[0].Job.Payload) != `{"n":1}` {
			t.Fatalf("dispatches: %+v, %v", ds, err)
		}
		hb, err := c.Heartbeat(ctx, Heartbeat{Node: "n1", Epoch: epoch, Read: ds[0].ID})
		if err != nil || len(hb.Start) != 1 || hb.Used != 1 {
			t.Fatalf("heartbeat: %+v, %v", hb, err)
		}
		status, err := c.Cancel(ctx, "acme", s.JobID)
		if err != nil || status.State != freeslot.StateCancelling {
			t.Fatalf("cancel: %+v, %v", status, err)
		}
		out, err := c.Complete(ctx, Completion{
			Node: "n1", Epoch: epoch, Attempt: Attempt{s.JobID, 1},
			State: freeslot.StateSucceeded, Result: json.RawMessage(`"ok"`),
		})
		if err != nil || out != Completed {
			t.Fatalf("complete: %v, %v", out, err)
		}
		rs, err := c.Replies(ctx, "r1", "", time.Second, 10)
		if err != nil || len(rs) != 2 || rs[1].Status.ID != s.JobID || string(rs[1].Status.Result) != `"ok"` {
			t.Fatalf("replies: %+v, %v", rs, err)
		}
		page, err := c.Jobs(ctx, JobFilter{}, "", 10)
		if err != nil || len(page.Jobs) != 1 || page.Jobs[0].State != freeslot.StateSucceeded || page.Cursor != "" {
			t.Fatalf("page: %+v, %v", page, err)
		}
		ch, err := c.Changes(ctx, 0, 10)
		if err != nil || len(ch.Nodes) != 1 || ch.Nodes[0].Used != 0 || ch.Nodes[0].Node.Services[0].Name != "echo" {
			t.Fatalf("changes: %+v, %v", ch, err)
		}
		if lost, err := c.Deregister(ctx, "n1", epoch); err != nil || len(lost) != 0 {
			t.Fatalf("deregister: %v, %v", lost, err)
		}
		ch, err = c.Changes(ctx, ch.Revision, 10)
		if err != nil || len(ch.Nodes) != 1 || !ch.Nodes[0].Gone {
			t.Fatalf("changes: %+v, %v", ch, err)
		}
	})
}
