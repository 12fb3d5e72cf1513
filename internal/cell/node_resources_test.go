package cell

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
)

// beat is a heartbeat of the node; resources "" is a sign of life alone.
func (r *rig) beat(node string, epoch Epoch, resources string) HeartbeatReply {
	r.t.Helper()
	hb := Heartbeat{Node: node, Epoch: epoch}
	if resources != "" {
		hb.Resources = json.RawMessage(resources)
	}
	reply, err := r.Heartbeat(r.ctx(), hb)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// resources are what replicas read of the node, by both of the scripts that they read with.
func (r *rig) resources(node string) string {
	r.t.Helper()
	all, err := r.Changes(r.ctx(), 0, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	one, err := r.Nodes(r.ctx(), []string{node})
	if err != nil || len(one.Nodes) != 1 {
		r.t.Fatalf("%+v, %v, expected 1 node", one, err)
	}
	for _, n := range all.Nodes {
		if n.Node.ID == node && !n.Gone {
			if d := cmp.Diff(n, one.Nodes[0]); d != "" {
				r.t.Errorf("a load and a single read differ:\n%s", d)
			}
		}
	}
	return string(one.Nodes[0].Resources)
}

// TestResources: each registered node that said something of its machine is told, however many there
// are.
func TestResources(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const nodes = resourcesPage + 3
		want := make(map[string]string)
		for i := range nodes {
			id := fmt.Sprint("n", i)
			epoch := r.register(testNode(id, 4))
			switch i {
			case 1: // says nothing
			case 2:
				r.beat(id, epoch, `{"build":"v1"}`)
				if _, err := r.Deregister(r.ctx(), id, epoch); err != nil {
					t.Fatal(err)
				}
			case 0, 3, nodes - 1:
				want[id] = fmt.Sprintf(`{"build":"v%d"}`, i)
				r.beat(id, epoch, want[id])
			}
		}
		got := make(map[string]string)
		err := r.Resources(r.ctx(), func(node, resources string) { got[node] = resources })
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("read %v; differs from what was said:\n%s", err, d)
		}
	})
}

// TestSignOfLifeAlone: a heartbeat without resources says nothing of them and changes nothing
// of what was said last; its time and its revision move on as ever.
func TestSignOfLifeAlone(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		hear := r.listen()
		body := func() string {
			t.Helper()
			heard := hear.drain()
			if len(heard) != 1 || heard[0].Kind != events.Heartbeat || heard[0].Revision != r.revision() {
				t.Fatalf("heard %+v", heard)
			}
			return heard[0].Body
		}
		r.beat("n1", epoch, "")
		if got := body(); got != "" || r.resources("n1") != "" || r.exists(r.l.Metrics("n1")) {
			t.Errorf("before it said anything: event %q, read %q", got, r.resources("n1"))
		}
		const first, second = `{"cpu_usage": 0.5}`, `{}`
		for _, said := range []string{first, second} {
			r.beat("n1", epoch, said)
			if got := body(); got != said || r.resources("n1") != said {
				t.Errorf("said %s: event %q, read %q", said, got, r.resources("n1"))
			}
			for name, hb := range map[string]Heartbeat{
				"nil": {}, "empty": {Resources: json.RawMessage("")}, "draining": {Status: freeslot.StatusDraining},
				"with entries read": {Read: "0-1"}, "with an attempt": {Running: []Attempt{{NewJobID(0), 1}}},
			} {
				hb.Node, hb.Epoch = "n1", epoch
				before, _ := r.load("n1")
				revision := r.revision()
				reply, err := r.Heartbeat(r.ctx(), hb)
				if err != nil || reply.Revision != revision+1 {
					t.Fatalf("%s: %+v, %v; want no error, reply.Revision == revision+1", name, reply, err)
				}
				at, kept := r.load("n1")
				if got := body(); got != "" || kept != said || at < before || r.resources("n1") != said {
					t.Errorf("%s: event %q, kept %q, read %q, at %d after %d", name, got, kept, r.resources("n1"), at, before)
				}
				r.beat("n1", epoch, "") // online again
				hear.drain()
			}
		}
		if n := r.int("STRLEN", r.l.Load("n1")); n != 13 {
			t.Errorf("%s holds %d bytes, expected a time", r.l.Load("n1"), n)
		}
		if strings.HasPrefix(r.l.Metrics("n1"), r.l.Prefix+":nodes:") {
			t.Errorf("%s is tracked", r.l.Metrics("n1"))
		}
		r.sound()
	})
}

// TestResourcesWithEverything: resources come with any other part of a heartbeat.
func TestResourcesWithEverything(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		job := r.place("", 1, "n1")
		for i := range 8 {
			hb := Heartbeat{Node: "n1", Epoch: epoch, Resources: fmt.Appendf(nil, `{"i":%d}`, i)}
			if i&1 != 0 {
				hb.Running = []Attempt{{job, 1}}
			}
			if i&2 != 0 {
				hb.Read = "0-1"
			}
			if i&4 != 0 {
				hb.Status = freeslot.StatusDraining
			}
			reply, err := r.Heartbeat(r.ctx(), hb)
			if err != nil || reply.Used != 1 || (len(reply.Start) == 0) != (i&1 != 0) || len(reply.Stop) != 0 {
				t.Errorf("%d: %+v, %v; want no error, reply.Used == 1, (len(reply.Start) == 0) == (i&1 != 0), len(reply.Stop) == 0", i, reply, err)
			}
			if got := r.resources("n1"); got != string(hb.Resources) {
				t.Errorf("%d: read %s", i, got)
			}
			if got := r.field(r.l.Node("n1"), "status"); (got == "draining") != (i&4 != 0) {
				t.Errorf("%d: status %s", i, got)
			}
		}
		r.sound()
	})
}

// TestResourcesGo: what a node said of its machine goes with the node and with the epoch
// that said it, however that ends.
func TestResourcesGo(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for name, end := range map[string]func(epoch Epoch){
			"deregistered": func(epoch Epoch) {
				_, err := r.Deregister(r.ctx(), "n1", epoch)
				must(t, err)
			},
			"reaped": func(epoch Epoch) {
				r.heard("n1", 1e12)
				if gone, err := r.Reap(r.ctx(), "n1", epoch); err != nil || !gone.Gone {
					t.Fatalf("%+v, %v, expected gone", gone, err)
				}
			},
			"taken over": func(Epoch) { r.register(testNode("n1", 4)) },
			"profile lost": func(epoch Epoch) {
				r.do("DEL", r.l.Node("n1"))
				_, err := r.Register(r.ctx(), testNode("n1", 4), epoch)
				must(t, err)
			},
		} {
			for _, jobs := range []int{0, 1} {
				epoch := r.register(testNode("n1", 4))
				if jobs > 0 {
					r.place("", 1, "n1")
				}
				r.beat("n1", epoch, `{"cpu_usage":1}`)
				if !r.exists(r.l.Metrics("n1")) {
					t.Fatalf("%s: nothing is stored", name)
				}
				end(epoch)
				if r.exists(r.l.Metrics("n1")) || r.resources("n1") != "" {
					t.Errorf("%s with %d jobs: %q is left", name, jobs, r.resources("n1"))
				}
				r.cancelWaiting()
				if r.exists(r.l.Node("n1")) {
					if _, err := r.Deregister(r.ctx(), "n1", r.field(r.l.Node("n1"), "epoch")); err != nil {
						t.Fatal(err)
					}
				}
				r.sound()
			}
		}
		// The same epoch with another profile keeps it.
		epoch := r.register(testNode("n1", 4))
		r.beat("n1", epoch, `{"cpu_usage":1}`)
		for _, slots := range []int{4, 5} {
			if _, err := r.Register(r.ctx(), testNode("n1", slots), epoch); err != nil {
				t.Fatal(err)
			}
			if got := r.resources("n1"); got != `{"cpu_usage":1}` {
				t.Errorf("registered again with %d slots: %q", slots, got)
			}
		}
	})
}

// TestEditedMetrics: whatever an operator makes of the key, no node is lost, the next
// heartbeat with resources mends it, and one without does not mind.
func TestEditedMetrics(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		for name, edit := range map[string][]string{
			"a hash": {"HSET", "a", "b"}, "a list": {"RPUSH", "a"}, "empty": {"SET", ""}, "no JSON": {"SET", "{ no"}, "gone": {"DEL"},
		} {
			r.beat("n1", epoch, `{"n":1}`)
			r.do("DEL", r.l.Metrics("n1"))
			r.do(append([]string{edit[0], r.l.Metrics("n1")}, edit[1:]...)...)
			r.beat("n1", epoch, "")
			if got := r.resources("n1"); got != "" {
				t.Errorf("%s: read %q", name, got)
			}
			r.beat("n1", epoch, `{"n":2}`)
			if got := r.resources("n1"); got != `{"n":2}` {
				t.Errorf("%s: read %q after the next heartbeat", name, got)
			}
		}
	})
}

// TestResourcesGetTheirTime: figures that leave room for it carry the time at which Redis took them
// in, also when later heartbeats bring none.
func TestResourcesGetTheirTime(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		r.beat("n1", epoch, `{"at_ms":0,"cpu":0.5}`)
		state, err := r.Nodes(r.ctx(), []string{"n1"})
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"at_ms":%d,"cpu":0.5}`, state.Nodes[0].LastHeartbeatMS)
		r.beat("n1", epoch, "")
		if got := r.resources("n1"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		r.beat("n1", epoch, `{"cpu":0.5}`)
		if got := r.resources("n1"); got != `{"cpu":0.5}` {
			t.Errorf("figures without room for it became %s", got)
		}
	})
}
