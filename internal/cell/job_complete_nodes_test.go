package cell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestCompleteNodesAsOne: what a call for several nodes ends is as if complete.lua had ended it, node by
// node; and what it leaves to complete.lua is as if no such call had been made.
func TestCompleteNodesAsOne(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		base := newRig(t, redis)
		shared, alone := 0, 0
		rapid.Check(t, func(rt *rapid.T) {
			retention := rapid.SampledFrom([]time.Duration{DefaultRetention, 25 * time.Hour}).Draw(rt, "retention")
			twins := make([]*rig, 2)
			for i := range twins {
				cfg := Config{Layout: base.l, CallTimeout: patience, HeartbeatLimit: time.Hour, Retention: retention}
				cfg.Layout.Prefix = redis.Prefix(t)
				c, err := New(cfg, base.client, zap.NewNop(), nil)
				if err != nil {
					rt.Fatal(err)
				}
				twins[i] = &rig{Cell: c, t: t, redis: redis, raw: base.raw, l: cfg.Layout}
			}
			h := drawFleet(rt, twins)
			for range 2 {
				comps := h.ends(rt)
				// One way: in a shared call, and the rest node by node.
				var plain, rest []Completion
				for _, c := range comps {
					if c.Plain() {
						plain = append(plain, c)
					} else {
						rest = append(rest, c)
					}
				}
				n := FitNodes(plain)
				rest, plain = append(rest, plain[n:]...), plain[:n]
				var ended []Completion
				if len(plain) > 0 {
					outcomes, err := twins[0].CompleteNodes(t.Context(), plain)
					if err != nil {
						rt.Fatal(err)
					}
					for i, outcome := range outcomes {
						switch outcome {
						case SharedCompleted:
							ended = append(ended, plain[i])
						case SharedAlone:
							rest = append(rest, plain[i])
						case SharedUnknown:
							rt.Fatal("Redis answered with an error")
						}
					}
				}
				// The other way: all of them node by node.
				for _, c := range nodeByNode(twins[1], ended) {
					if c != string(Completed) {
						rt.Fatalf("a shared call ended what complete.lua finds %s", c)
					}
				}
				check(rt, "the others", fmt.Sprint(nodeByNode(twins[1], rest)), fmt.Sprint(nodeByNode(twins[0], rest)), nil, nil)
				check(rt, "replies", h.replies(twins[1]), h.replies(twins[0]), nil, nil)
				check(rt, "Redis", withoutReplies(twins[1]), withoutReplies(twins[0]), nil, nil)
				shared, alone = shared+len(ended), alone+len(rest)
			}
		})
		if t.Logf("%d ends shared a call, %d went alone", shared, alone); shared < alone/10 || alone < shared/10 {
			t.Errorf("%d ends shared a call, %d went alone, expected many of each", shared, alone)
		}
	})
}

// endings is several nodes with jobs, the same in two cells.
type endings struct {
	twins []*rig
	nodes []string
	jobs  []string
}

func drawFleet(rt *rapid.T, twins []*rig) *endings {
	h := &endings{twins: twins}
	both := func(do func(r *rig) error) {
		for _, r := range twins {
			if err := do(r); err != nil {
				rt.Fatal(err)
			}
		}
	}
	both(func(r *rig) error { return r.OpenReplies(r.ctx(), "r1") })
	both(func(r *rig) error { return r.OpenReplies(r.ctx(), "r2") })
	for i := range rapid.IntRange(1, 4).Draw(rt, "nodes") {
		node := testNode(fmt.Sprint("n", i), rapid.SampledFrom([]int{1, 2, 3, 12}).Draw(rt, "max"))
		h.nodes = append(h.nodes, node.ID)
		both(func(r *rig) error { _, err := r.Register(r.ctx(), node, "e1"); return err })
		for range rapid.IntRange(0, 4).Draw(rt, "jobs") {
			s := drawEnding(rt)
			s.Candidates = []string{node.ID}
			h.jobs = append(h.jobs, s.JobID)
			both(func(r *rig) error { _, err := r.submit(r.ctx(), encoded(r.t, s)); return err })
		}
	}
	for range max(0, rapid.IntRange(-4, 2).Draw(rt, "waiting")) {
		s := drawEnding(rt)
		if rapid.IntRange(0, 3).Draw(rt, "limited") == 0 {
			s.Limits = []Limit{KeyLimit("acme", "a", 2)}
		}
		node := rapid.SampledFrom(h.nodes).Draw(rt, "taker")
		both(func(r *rig) error { r.enqueued(s); return nil })
		both(func(r *rig) error { _, err := r.Take(r.ctx(), node, modelClasses[:1], 1); return err })
	}
	for _, job := range h.jobs {
		switch rapid.IntRange(0, 39).Draw(rt, "spoilt") {
		case 17:
			both(func(r *rig) error { _, _ = r.Cancel(r.ctx(), "", job); return nil }) // there may be none
		case 18:
			both(func(r *rig) error { r.do("DEL", r.l.Job(job)); return nil })
		case 19:
			both(func(r *rig) error { r.do("DEL", r.l.Job(job)); r.do("SADD", r.l.Job(job), "x"); return nil })
		}
	}
	node := rapid.SampledFrom(h.nodes).Draw(rt, "node")
	switch rapid.IntRange(0, 19).Draw(rt, "edit") {
	case 11:
		both(func(r *rig) error { r.do("DEL", r.l.Node(node)); r.do("SADD", r.l.Node(node), "x"); return nil })
	case 12:
		both(func(r *rig) error { r.do("HSET", r.l.Slots(node), "sum", "many"); return nil })
	case 13:
		both(func(r *rig) error { r.do("SET", r.l.key("waiting", ""), "x"); return nil })
	}
	return h
}

// ends are of most attempts that run, and of some that do not.
func (h *endings) ends(rt *rapid.T) (comps []Completion) {
	for _, node := range h.nodes {
		held, _ := h.twins[0].slots(node)
		for _, job := range slices.Sorted(maps.Keys(held)) {
			if rapid.IntRange(0, 7).Draw(rt, "later") == 5 {
				continue
			}
			c := succeed(node, "e1", job)
			if rapid.IntRange(0, 7).Draw(rt, "odd") == 5 {
				c = drawEnd(rt, Attempt{job, held[job].attempt})
				c.Node = node
			}
			if rapid.IntRange(0, 19).Draw(rt, "stranger") == 11 {
				c.Epoch = "e2"
			}
			comps = append(comps, c)
		}
	}
	if len(h.jobs) > 0 && rapid.IntRange(0, 5).Draw(rt, "again") == 3 {
		c := drawEnd(rt, Attempt{rapid.SampledFrom(h.jobs).Draw(rt, "job"), 1})
		c.Node = rapid.SampledFrom(h.nodes).Draw(rt, "node")
		comps = append(comps, c)
	}
	return rapid.Permutation(comps).Draw(rt, "order")
}

// nodeByNode ends attempts by complete.lua, one call for each node and epoch in the order of their first
// items, and returns the outcomes.
func nodeByNode(r *rig, comps []Completion) (out []string) {
	for len(comps) > 0 {
		var call, rest []Completion
		for _, c := range comps {
			if c.Node == comps[0].Node && c.Epoch == comps[0].Epoch {
				call = append(call, c)
			} else {
				rest = append(rest, c)
			}
		}
		for _, result := range r.CompleteNode(r.ctx(), call) {
			if result.Err != nil {
				out = append(out, result.Err.Error())
			} else {
				out = append(out, string(result.Outcome))
			}
		}
		comps = rest
	}
	return out
}

// replies are what both replicas have heard since the last call, in any order, without times.
func (h *endings) replies(r *rig) (out []string) {
	for _, replica := range []string{"r1", "r2"} {
		found, err := r.Replies(r.ctx(), replica, "", 0, 1000)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, reply := range found {
			reply.ID, reply.Status.FinishedAtMS, reply.Status.AssignedAtMS = "", 0, 0
			out = append(out, fmt.Sprintf("%s: %+v %+v", replica, reply, reply.Status.Error))
		}
	}
	slices.Sort(out)
	return out
}

func withoutReplies(r *rig) map[string]string {
	dump := timelessDump(r)
	for key := range dump {
		if strings.HasPrefix(key, "replies:") {
			delete(dump, key)
		}
	}
	return dump
}

// TestCompleteNodesOfTwoAttempts: two nodes end the same job in one call, and only its owner counts.
func TestCompleteNodesOfTwoAttempts(t *testing.T) {
	for name, lateLast := range map[string]bool{"late first": false, "late last": true} {
		t.Run(name, func(t *testing.T) { completeTwoAttempts(t, lateLast) })
	}
}

func completeTwoAttempts(t *testing.T, lateLast bool) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		first, second := r.register(testNode("n1", 1)), r.register(testNode("n2", 1))
		job := r.place("r1", 1, "n1")
		again := r.fails("n1", first, job, Retry)
		r.complete1(again)
		r.forgive(job)
		if r.take("n2") != 1 {
			t.Fatal("the job did not begin again")
		}
		late, owner := succeed("n1", first, job), succeed("n2", second, job)
		late.Result, owner.Attempt.N = []byte(`"late"`), 2
		claimed := succeed("n2", second, job) // attempt 1, which ran elsewhere
		for name, comps := range map[string][]Completion{"late first": {late, owner}, "late last": {owner, late}, "wrong attempt": {claimed, late}} {
			r.unchanged(name, func() {
				out, err := r.CompleteNodes(r.ctx(), comps)
				if must(t, err); !slices.Equal(out, []SharedOutcome{SharedAlone, SharedAlone}) {
					t.Errorf("%s: %v; want slices.Equal(out, []SharedOutcome{SharedAlone, SharedAlone})", name, out)
				}
			}, nil)
		}
		comps := []Completion{late, owner}
		if lateLast {
			slices.Reverse(comps)
		}
		out := nodeByNode(r, comps)
		if lateLast {
			slices.Reverse(out)
		}
		if !slices.Equal(out, []string{"completed_before", "completed"}) && !slices.Equal(out, []string{"stale", "completed"}) {
			t.Error(out)
		}
		if s := r.status(job); s.State != freeslot.StateSucceeded || string(s.Result) != `{"ok":true}` || s.Attempt != 2 {
			t.Errorf("%+v; want s.State == freeslot.StateSucceeded, string(s.Result) == `{\"ok\":true}`, s.Attempt == 2", s)
		}
		r.sound()
	})
}

// TestCompleteNodesWithBadKeys: a key that an operator has spoilt costs its own node's items alone, of
// which nothing is changed; also those behind it in the call are ended.
func TestCompleteNodesWithBadKeys(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		var comps []Completion
		for _, node := range []string{"first", "slots", "second", "profile", "record", "last"} {
			epoch := r.register(testNode(node, 2))
			comps = append(comps, succeed(node, epoch, r.place("", 1, node)), succeed(node, epoch, r.place("", 1, node)))
		}
		for _, key := range []string{r.l.Slots("slots"), r.l.Node("profile"), r.l.Job(comps[9].Attempt.Job)} {
			r.do("DEL", key)
			r.do("SADD", key, "x")
		}
		var out []SharedOutcome
		bad := []string{r.l.Slots("slots"), r.l.Slots("profile"), r.l.Slots("record"), r.l.Node("record")}
		for _, i := range []int{2, 3, 6, 7, 8, 9} {
			bad = append(bad, r.l.Job(comps[i].Attempt.Job))
		}
		r.unchanged("an end of a node with a bad key", func() {
			var err error
			out, err = r.CompleteNodes(r.ctx(), comps)
			must(t, err)
		}, func(dump map[string]string) {
			for key := range dump {
				if !slices.Contains(bad, r.l.Prefix+":"+key) {
					delete(dump, key)
				}
			}
		})
		for i, c := range comps {
			want := SharedCompleted
			if c.Node == "slots" || c.Node == "profile" || c.Node == "record" {
				want = SharedAlone
			}
			if out[i] != want {
				t.Errorf("item %d of node %s: %d, expected %d", i, c.Node, out[i], want)
			}
			if s, err := r.Job(r.ctx(), "", c.Attempt.Job); want == SharedCompleted && (err != nil || s.State != freeslot.StateSucceeded) {
				t.Errorf("job of %s: %+v, %v", c.Node, s, err)
			}
		}
	})
}

// TestCompleteNodesAfterAnError: nothing is known after an error answer, and all can be repeated.
func TestCompleteNodesAfterAnError(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		var comps []Completion
		for _, node := range []string{"n1", "n2"} {
			comps = append(comps, succeed(node, r.register(testNode(node, 1)), r.place("r1", 1, node)))
		}
		text := scripts["complete_nodes"].Text(false)
		for i, at := range []string{"return codes", "local codes"} { // behind all, and before all
			broken := maps.Clone(scripts)
			cut := strings.LastIndex(text, at)
			broken["complete_nodes"] = script.New("complete_nodes", text[:cut]+"error('planted')\n"+text[cut:])
			r.scripts = broken
			if out, err := r.CompleteNodes(r.ctx(), comps); err != nil || !slices.Equal(out, []SharedOutcome{SharedUnknown, SharedUnknown}) {
				t.Errorf("%v, %v; want no error, slices.Equal(out, []SharedOutcome{SharedUnknown, SharedUnknown})", out, err)
			}
			r.scripts = scripts
			want := []string{"completed", "completed"}
			if i == 0 {
				want = []string{"completed_before", "completed_before"}
			}
			if out := nodeByNode(r, comps); !slices.Equal(out, want) {
				t.Errorf("repeated: %v, expected %v", out, want)
			}
			r.sound()
			for k := range comps {
				comps[k].Attempt.Job = r.place("r1", 1, comps[k].Node)
			}
		}
	})
}

// TestBadEnds: a completion that cannot be sent costs no other anything.
func TestBadEnds(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 9))
		ends := func() []Completion {
			bad, other := succeed("n1", epoch, "no id"), succeed("n1", "older", r.place("", 1, "n1"))
			return []Completion{bad, succeed("n1", epoch, r.place("", 1, "n1")), other}
		}
		out, err := r.CompleteNodes(r.ctx(), ends())
		if must(t, err); !slices.Equal(out, []SharedOutcome{SharedAlone, SharedCompleted, SharedAlone}) {
			t.Error(out)
		}
		out, err = r.CompleteNodes(r.ctx(), ends()[:1])
		if must(t, err); !slices.Equal(out, []SharedOutcome{SharedAlone}) {
			t.Error(out)
		}
		results := r.CompleteNode(r.ctx(), ends()[:2])
		if wantErr(t, results[0].Err, freeslot.CodeInvalidArgument); results[1].Outcome != Completed {
			t.Errorf("%+v; want results[1].Outcome == Completed", results[1])
		}
		wantErr(t, r.CompleteNode(r.ctx(), ends()[:1])[0].Err, freeslot.CodeInvalidArgument)
	})
}

func TestFit(t *testing.T) {
	t.Parallel()
	ends := func(n, nodes, bytes int) (out []Completion) {
		for i := range n {
			out = append(out, Completion{Node: fmt.Sprint(i % nodes), Result: make([]byte, bytes)})
		}
		return out
	}
	for _, c := range []struct{ got, want int }{
		{FitNodes(ends(1, 1, 1<<20)), 1},
		{FitNodes(ends(200, 2, 0)), 64},
		{FitNodes(ends(200, 200, 0)), 32},
		{FitNodes(ends(40, 32, 0)), 40},
		{FitNodes(ends(40, 32, 64<<10)), 3},
		{FitNode(ends(200, 1, 0)), 64},
		{FitNode(ends(20, 1, 256<<10)), 3},
		{FitNode(ends(2, 1, 2<<20)), 1},
		{FitHeartbeats(make([]LinkedHeartbeat, 40)), 32},
		{FitHeartbeats([]LinkedHeartbeat{{Heartbeat: Heartbeat{Running: make([]Attempt, 2000)}}, {}}), 1},
		{FitHeartbeats(slices.Repeat([]LinkedHeartbeat{{Heartbeat: Heartbeat{Resources: make([]byte, maxResources)}}}, 9)), 8},
		{FitHeartbeats([]LinkedHeartbeat{{}, {}, {Heartbeat: Heartbeat{Running: make([]Attempt, 2000)}}}), 2},
	} {
		if c.got != c.want {
			t.Errorf("%d share a call, expected %d", c.got, c.want)
		}
	}
}
