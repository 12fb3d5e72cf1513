package cell

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

func TestGatewayStream(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for _, trim := range []string{"", "0-1"} {
			if err := r.KeepGateway(r.ctx(), "g1", trim); !errors.Is(err, ErrGatewayGone) || r.exists(r.l.Gateway("g1")) {
				t.Errorf("keep without open: %v", err)
			}
		}
		if ds, err := r.GatewayDispatches(r.ctx(), "g1", "", 0, 10); err != nil || len(ds) != 0 {
			t.Errorf("no stream: %+v, %v", ds, err)
		}
		must(t, r.OpenGateway(r.ctx(), "g1"))
		if ttl := r.int("PTTL", r.l.Gateway("g1")); ttl <= 0 || ttl > streamTTL.Milliseconds() {
			t.Errorf("TTL %d ms", ttl)
		}
		if ds, err := r.GatewayDispatches(r.ctx(), "g1", "", 0, 10); err != nil || len(ds) != 0 {
			t.Errorf("just opened: %+v, %v", ds, err)
		}
		r.linked("n1", 9, "g1", "s1")
		jobs := []string{r.place("", 1, "n1"), r.place("", 1, "n1"), r.place("", 1, "n1")}
		found := r.gateway("g1")
		must(t, r.KeepGateway(r.ctx(), "g1", found[1].ID))
		var left []string
		for _, d := range r.gateway("g1") {
			left = append(left, d.Attempt.Job)
		}
		if !slices.Equal(left, jobs[1:]) {
			t.Errorf("left are %v, want %v", left, jobs[1:])
		}
		must(t, r.OpenGateway(r.ctx(), "g1")) // by a process that has the name of one before
		if got := r.gateway("g1"); len(got) != 2 {
			t.Errorf("opened again: %+v", got)
		}
		must(t, r.CloseGateway(r.ctx(), "g1"))
		r.place("", 1, "n1")
		if err := r.KeepGateway(r.ctx(), "g1", ""); !errors.Is(err, ErrGatewayGone) || r.exists(r.l.Gateway("g1")) {
			t.Errorf("keep after close: %v", err)
		}
	})
}

func TestGatewayNames(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"", "a:b", "a b", "-"} {
			_, err := r.GatewayDispatches(r.ctx(), name, "", 0, 1)
			for _, err := range []error{err, r.OpenGateway(r.ctx(), name), r.KeepGateway(r.ctx(), name, ""), r.CloseGateway(r.ctx(), name)} {
				wantErr(t, err, freeslot.CodeInvalidArgument)
			}
		}
	})
}

// TestUnreadableOfGateways: what cannot be read is passed over, and holds up nothing.
func TestUnreadableOfGateways(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenGateway(r.ctx(), "g1"))
		r.linked("n1", 3, "g1", "s1")
		id := NewJobID(0)
		spoil := func() {
			for _, fields := range [][]string{
				{"j", "x 1 acme n1 s1"},
				{"j", id + " 1 acme"},
				{"j", id + " 1 acme n1"},
				{"j", id + " one acme n1 s1"},
				{"j", id + " 1 acme n1 s1", "s", "{"},
				{"c", id + " 1"},
				{"c", id + " 1 n1"},
				{"k", "drain"},
			} {
				r.do(append([]string{"XADD", r.l.Gateway("g1"), "*"}, fields...)...)
			}
		}
		spoil()
		want := []string{r.place("", 1, "n1")}
		spoil()
		want = append(want, r.place("", 1, "n1"))
		spoil()
		after, got := "", []string(nil)
		for range want {
			ds, err := r.GatewayDispatches(r.ctx(), "g1", after, 0, 3)
			if err != nil || len(ds) == 0 {
				t.Fatalf("%+v, %v; want no error, len(ds) != 0", ds, err)
			}
			for _, d := range ds {
				got, after = append(got, d.Attempt.Job), d.ID
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if ds, err := r.GatewayDispatches(r.ctx(), "g1", after, 0, 3); err != nil || len(ds) != 0 {
			t.Errorf("behind the last: %+v, %v", ds, err)
		}
	})
}

// TestDeliverByGateway: each script that delivers does so by the stream that the node's load names.
func TestDeliverByGateway(t *testing.T) {
	large := func(s *Submission) { s.Job.Payload = []byte(`"` + strings.Repeat("x", 10_000) + `"`) }
	for _, c := range []struct {
		name string
		// deliver has n1 told of the last job, and maybe of others before.
		deliver func(r *rig) (job string)
		attempt int
		cancel  bool
		bare    bool // without a spec
	}{
		{name: "submit", deliver: func(r *rig) string { return r.place("", 1, "n1") }},
		{name: "submit of a large job", bare: true, deliver: func(r *rig) string {
			s := submission("", "n1")
			large(&s)
			_, err := r.Submit(r.ctx(), s)
			must(r.t, err)
			return s.JobID
		}},
		{name: "enqueue", deliver: func(r *rig) string {
			s := submission("", "n1")
			r.enqueued(s)
			return s.JobID
		}},
		{name: "take", deliver: func(r *rig) string {
			job := r.waits("")
			r.take("n1")
			return job
		}},
		{name: "take of a large job", bare: true, deliver: func(r *rig) string {
			job := r.waits("", large)
			r.take("n1")
			return job
		}},
		{name: "cancel", cancel: true, deliver: func(r *rig) string {
			job := r.place("", 1, "n1")
			_, err := r.Cancel(r.ctx(), "", job)
			must(r.t, err)
			return job
		}},
		{name: "due", cancel: true, deliver: func(r *rig) string {
			s := submission("", "n1")
			s.Job.TimeoutMS = 3_600_000
			_, err := r.Submit(r.ctx(), s)
			must(r.t, err)
			r.pass(s.JobID)
			_, err = r.Due(r.ctx(), 10)
			must(r.t, err)
			return s.JobID
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			backends(t, func(t *testing.T, r *rig) {
				for _, gateway := range []string{"g1", "other"} {
					must(t, r.OpenGateway(r.ctx(), gateway))
				}
				epoch := r.linked("n1", 3, "g1", "s1")
				job := c.deliver(r)
				found := r.gateway("g1")
				if len(found) == 0 {
					t.Fatal("nothing was delivered")
				}
				d := found[len(found)-1]
				spec := d.Job != nil
				if d.Attempt != (Attempt{job, 1}) || d.Cancel != c.cancel || d.Node != "n1" || d.Session != "s1" {
					t.Errorf(`%+v; want d.Attempt == (Attempt{job, 1}), d.Cancel == %v, d.Node == "n1", d.Session == "s1"`, d, c.cancel)
				}
				if !c.cancel && (d.Tenant != "acme" || spec == c.bare) {
					t.Errorf("tenant %q, spec %v", d.Tenant, d.Job)
				}
				if r.exists(r.l.Dispatch("n1")) || len(r.gateway("other")) > 0 {
					t.Error("the delivery is elsewhere, too")
				}

				// The next session is of a gateway that has gone: the next heartbeat names what is missing.
				beat := func(gateway string, number int64) HeartbeatReply {
					hb, err := r.HeartbeatLinked(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}, r.link(gateway, fmt.Sprint("s", number), number))
					must(t, err)
					return hb
				}
				beat("gone", 2)
				job = c.deliver(r)
				if r.exists(r.l.Gateway("gone")) || r.exists(r.l.Dispatch("n1")) || len(r.gateway("g1")) > len(found) {
					t.Error("a gateway that has gone has a stream, or another has its entry")
				}
				hb := beat(NodeStream, 3)
				if !slices.Contains(hb.Start, Attempt{job, 1}) || slices.Contains(hb.Cancel, Attempt{job, 1}) != c.cancel {
					t.Errorf("the heartbeat is answered by %+v", hb)
				}
				// This one is of a release before.
				job = c.deliver(r)
				ds, err := r.Dispatches(r.ctx(), "n1", "", 0, 10)
				if n := len(ds); err != nil || n == 0 || ds[n-1].Attempt != (Attempt{job, 1}) || len(r.gateway("g1")) > len(found) {
					t.Errorf(`%+v, %v; want no error, n != 0, ds[n-1].Attempt == (Attempt{job, 1}), len(r.gateway("g1")) <= len(found)`, ds, err)
				}
			})
		})
	}
}

// TestGatewayShares: jobs of one call share entries of their gateway's stream, for whatever nodes
// they are. Other gateways and direct nodes get entries of their own.
func TestGatewayShares(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenGateway(r.ctx(), "g1"))
		must(t, r.OpenGateway(r.ctx(), "g2"))
		const jobs = 12
		nodes := []string{"n1", "n2", "n3", "n4"}
		r.linked("n1", jobs, "g1", "s1")
		r.linked("n2", jobs, "g1", "s2")
		r.linked("n3", jobs, "g2", "s3")
		r.register(testNode("n4", jobs))
		subs := make([]Submission, jobs)
		for i := range subs {
			subs[i] = submission("", nodes[i%4])
		}
		placed, err := r.Cell.submit(r.ctx(), encoded(t, subs...))
		must(t, err)
		for i := range placed {
			if placed[i].Node != nodes[i%4] {
				t.Errorf("job %d is on %q", i, placed[i].Node)
			}
		}
		told := make(map[string][]string) // by stream
		for _, gateway := range []string{"g1", "g2"} {
			for _, d := range r.gateway(gateway) {
				told[gateway] = append(told[gateway], fmt.Sprint(d.Attempt.Job, " ", d.Node, " ", d.Session, " ", d.Job.Service))
			}
			if entries := r.stream(r.l.Gateway(gateway)); len(entries) != 2 { // the first opened it
				t.Errorf("%s has %d entries", gateway, len(entries)-1)
			}
		}
		ds, err := r.Dispatches(r.ctx(), "n4", "", 0, 10)
		must(t, err)
		for _, d := range ds {
			told["n4"] = append(told["n4"], fmt.Sprint(d.Attempt.Job, " n4  ", d.Job.Service))
		}
		want := make(map[string][]string)
		for i := range subs {
			stream, session := []string{"g1", "g1", "g2", "n4"}[i%4], []string{"s1", "s2", "s3", ""}[i%4]
			want[stream] = append(want[stream], fmt.Sprint(subs[i].JobID, " ", nodes[i%4], " ", session, " ", subs[i].Job.Service))
		}
		if fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("told %v, want %v", told, want)
		}
		for _, e := range r.stream(r.l.Dispatch("n3")) {
			t.Errorf("n3 got %v by its own stream", e)
		}
	})
}

// TestGatewayEntries: specs of 8 KiB are spread over entries. An entry has at most one spec beyond
// 64 KiB.
func TestGatewayEntries(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenGateway(r.ctx(), "g1"))
		const jobs = 40
		subs := make([]Submission, jobs)
		for i := range subs {
			node := fmt.Sprint("n", i)
			r.linked(node, 1, "g1", "s-"+node)
			subs[i] = submission("", node)
			subs[i].Job.Payload = []byte(`"` + strings.Repeat("x", 8000) + `"`)
		}
		_, err := r.Cell.submit(r.ctx(), encoded(t, subs...))
		must(t, err)
		size, told := make(map[string]int), make(map[string]bool)
		for _, d := range r.gateway("g1") {
			size[d.ID] += len(d.Job.Payload)
			told[d.Attempt.Job] = d.Session == "s-"+d.Node
		}
		for i := range subs {
			if !told[subs[i].JobID] {
				t.Errorf("job %d was not delivered, or to another session", i)
			}
		}
		if len(told) != jobs || len(size) != 5 {
			t.Errorf("%d jobs in %d entries", len(told), len(size))
		}
		for id, bytes := range size {
			if bytes > 65536+8192 {
				t.Errorf("entry %s has %d bytes", id, bytes)
			}
		}
	})
}

// TestFormerDeliveries: what replicas of the release before have delivered to the node itself goes once a
// heartbeat has named it.
func TestFormerDeliveries(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.linked("n1", 3, NodeStream, "s1")
		job := r.place("", 1, "n1")
		beat := func(running ...Attempt) HeartbeatReply {
			hb, err := r.HeartbeatLinked(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: running}, r.link("g1", "s2", 2))
			must(t, err)
			return hb
		}
		if hb := beat(Attempt{job, 1}); len(hb.Start) > 0 || !r.exists(r.l.Dispatch("n1")) {
			t.Errorf(`%+v; want len(hb.Start) <= 0, r.exists(r.l.Dispatch("n1"))`, hb)
		}
		if hb := beat(); len(hb.Start) != 1 || r.exists(r.l.Dispatch("n1")) {
			t.Errorf("%+v, and the stream is there: %v", hb, r.exists(r.l.Dispatch("n1")))
		}
	})
}

// link says that a session of this gateway connects the node.
func (r *rig) link(gateway, session string, number int64) Link {
	l := testLink(number, "t")
	l.Stream, l.Session = gateway, session
	return l
}

// linked makes a node known that is connected by the session of a gateway.
func (r *rig) linked(node string, slots int, gateway, session string) Epoch {
	r.t.Helper()
	epoch := NewEpoch()
	if _, err := r.RegisterLinked(r.ctx(), testNode(node, slots), epoch, r.link(gateway, session, 1), ""); err != nil {
		r.t.Fatal(err)
	}
	return epoch
}

// gateway is what was delivered by a gateway.
func (r *rig) gateway(replica string) []GatewayDispatch {
	r.t.Helper()
	ds, err := r.GatewayDispatches(r.ctx(), replica, "", 0, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	return ds
}
