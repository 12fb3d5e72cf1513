package cell

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redisclient"
)

// TestEmbedded is the life of jobs on the stand-in that `scheduler dev` uses where no
// redis-server is installed, through the client that a replica opens.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	target := embedded(t)
	client, err := redisclient.Commands(redisclient.Config{URL: target.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	layout := Layout{Prefix: DefaultPrefix}
	warnings, err := Check(t.Context(), client, layout)
	if err != nil || len(warnings) == 0 {
		t.Fatalf("check: %v, warnings %q", err, warnings)
	}
	c, err := New(Config{Layout: layout, CallTimeout: patience}, client, zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(t.Context()) })
	r := &rig{Cell: c, t: t, redis: target, raw: target.Client(t), l: layout}

	hear := r.listen()
	if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
		t.Fatal(err)
	}
	epoch := r.register(richNode("n1"))
	blocked := make(chan []Dispatch, 1)
	go func() {
		ds, _ := r.Dispatches(r.ctx(), "n1", "", time.Minute, 10)
		blocked <- ds
	}()
	job := r.place("r1", 2, "n1")
	ds := receive(t, blocked)
	if len(ds) != 1 || ds[0].Attempt != (Attempt{job, 1}) {
		t.Errorf("dispatches %+v", ds)
	}
	second := r.place("r1", 1, "n1")
	if p, err := r.Submit(r.ctx(), submission("r1", "n1", "n2")); err != nil || p.Assigned || len(p.Refusals) != 2 || p.Refusals[0].Reason != RefusedFull {
		t.Errorf("submit to a full node: %+v, %v", p, err)
	}
	if s, err := r.Cancel(r.ctx(), "acme", second); err != nil || s.State != freeslot.StateCancelling {
		t.Errorf("cancel: %+v, %v", s, err)
	}
	hb, err := r.Heartbeat(r.ctx(), Heartbeat{
		Node: "n1", Epoch: epoch, Read: ds[0].ID, Running: []Attempt{{job, 1}}, Resources: json.RawMessage(`{"a":1}`),
	})
	if err != nil || hb.Used != 3 || !slices.Equal(hb.Start, []Attempt{{second, 1}}) || !slices.Equal(hb.Cancel, []Attempt{{second, 1}}) {
		t.Errorf("heartbeat: %+v, %v", hb, err)
	}
	r.end("n1", epoch, job)
	if out, err := r.Complete(r.ctx(), succeed("n1", epoch, job)); err != nil || out != CompletedBefore {
		t.Errorf("complete again: %v, %v", out, err)
	}
	rs, err := r.Replies(r.ctx(), "r1", "", time.Second, 10)
	if err != nil || len(rs) != 2 || rs[1].Status.ID != job || string(rs[1].Status.Result) != `{"ok":true}` {
		t.Errorf("replies: %+v, %v", rs, err)
	}
	if err := r.KeepReplies(r.ctx(), "r1", rs[1].ID); err != nil {
		t.Error(err)
	}
	if s, err := r.Attach(r.ctx(), "acme", second, "r2"); err != nil || s.State != freeslot.StateCancelling {
		t.Errorf("attach: %+v, %v", s, err)
	}
	r.soundOwnership([]string{"n1"}, []string{job, second})
	r.soundIndexes([]string{"n1"}, []string{"n1"})
	ids, _ := r.all(JobFilter{}, 1)
	if slices.Sort(ids); !slices.Equal(ids, slices.Sorted(slices.Values([]string{job, second}))) {
		t.Errorf("listing: %v", ids)
	}
	ch, err := r.Changes(r.ctx(), 0, 10)
	if err != nil || len(ch.Nodes) != 1 || ch.Nodes[0].Used != 1 || ch.Nodes[0].Broken != nil || ch.Revision != r.revision() || ch.NowMS == 0 {
		t.Errorf("changes: %+v, %v", ch, err)
	}
	if lost, err := r.Deregister(r.ctx(), "n1", epoch); err != nil || !slices.Equal(lost, []string{second}) {
		t.Errorf("deregister: %v, %v", lost, err)
	}
	if ch, err = r.Changes(r.ctx(), ch.Revision, 10); err != nil || len(ch.Nodes) != 1 || !ch.Nodes[0].Gone {
		t.Errorf("changes: %+v, %v", ch, err)
	}
	var kinds strings.Builder
	for i, e := range hear.drain() {
		if e.Revision != Revision(i+1) {
			t.Errorf("event %d: %+v", i, e)
		}
		kinds.WriteByte(byte(e.Kind))
	}
	if kinds.String() != "rfheo" {
		t.Errorf("events %q", kinds.String())
	}
	for _, job := range []string{job, second} {
		if ttl := r.int("PTTL", r.l.Job(job)); ttl <= 0 {
			t.Errorf("job %s has TTL %d", job, ttl)
		}
	}
}
