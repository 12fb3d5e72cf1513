package cell

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
)

// richNode uses every field of a profile.
func richNode(id string) freeslot.Node {
	return freeslot.Node{
		ID: id, MaxConcurrency: 3,
		Services:  []freeslot.Service{{Name: "tts", Version: "2.1"}, {Name: "echo"}},
		Languages: freeslot.Languages{ASR: []string{"de", "en"}, TTS: []string{"fr"}, Semantic: []string{"en"}},
		Pools:     []string{"gpu", "eu", "gpu"},
		Labels:    map[string]string{"zone": "a b:c"},
		Features:  map[string]bool{"fp16": true, "int8": false},
	}
}

func TestRegisterNew(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		hear := r.listen()
		before := r.nowMS()
		node := richNode("n1")
		reg, err := r.Register(r.ctx(), node, "epoch-1")
		if err != nil || reg.Revision != 1 || len(reg.Lost) != 0 || reg.HeartbeatLimit != r.HeartbeatLimit() {
			t.Fatalf("register: %+v, %v", reg, err)
		}
		after := r.nowMS()

		profile := r.hash(r.l.Node("n1"))
		registered, _ := strconv.ParseInt(profile["registered_at_ms"], 10, 64)
		if registered < before || registered > after {
			t.Errorf("registered at %d, the call was from %d to %d", registered, before, after)
		}
		delete(profile, "registered_at_ms")
		want := map[string]string{
			"node_id": "n1", "epoch": "epoch-1", "status": "online", "health": "Online", "version": "1", "max_concurrency": "3",
			"capabilities":       `{"asr_languages":["de","en"],"tts_languages":["fr"],"semantic_languages":["en"]}`,
			"installed_services": `[{"name":"tts","version":"2.1"},{"name":"echo"}]`,
			"pool_ids":           `["eu","gpu"]`, "labels": `{"zone":"a b:c"}`, "features_supported": `{"fp16":true,"int8":false}`,
		}
		if d := cmp.Diff(want, profile); d != "" {
			t.Errorf("profile (-want +got):\n%s", d)
		}
		for pool, members := range map[string][]string{"gpu": {"n1"}, "eu": {"n1"}, "us": nil} {
			if got := r.set(r.l.PoolMembers(pool)); !slices.Equal(got, members) {
				t.Errorf("pool %s has members %v", pool, got)
			}
		}
		if r.exists(r.l.Load("n1")) {
			t.Error("there are figures before the first heartbeat")
		}
		if ttl := r.int("PTTL", r.l.Node("n1")); ttl != -1 {
			t.Errorf("TTL of the profile is %d ms", ttl)
		}
		if len(r.field(r.l.Version(), "generation")) != 16 {
			t.Errorf("generation %q", r.field(r.l.Version(), "generation"))
		}
		got := hear.drain()
		body := string(mustJSON(node))
		expected := []events.Event{{
			Kind: events.Register, Revision: 1, AtMS: registered, Node: "n1", Epoch: "epoch-1",
			Status: freeslot.StatusOnline, MaxConcurrency: 3, Body: body,
		}}
		if d := cmp.Diff(expected, got); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		r.sound()
	})
}

// TestRegisterOtherProfile: the same agent states another profile. Nothing that it
// runs is lost, and what it no longer names is cleared.
func TestRegisterOtherProfile(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if _, err := r.Register(r.ctx(), richNode("n1"), "e1"); err != nil {
			t.Fatal(err)
		}
		job := r.place("", 2, "n1")
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: "e1", Status: freeslot.StatusDraining, Running: []Attempt{{job, 1}}}); err != nil {
			t.Fatal(err)
		}
		hear := r.listen()
		registered := r.field(r.l.Node("n1"), "registered_at_ms")
		changed := testNode("n1", 2)
		changed.Pools = []string{"eu", "us"}
		reg, err := r.Register(r.ctx(), changed, "e1")
		if err != nil || len(reg.Lost) != 0 || reg.Revision != r.revision() {
			t.Fatalf("register: %+v, %v", reg, err)
		}
		profile := r.hash(r.l.Node("n1"))
		if profile["registered_at_ms"] != registered || profile["status"] != "draining" || profile["labels"] != "{}" ||
			profile["features_supported"] != "{}" || profile["capabilities"] != "{}" || profile["max_concurrency"] != "2" {
			t.Errorf("profile %v", profile)
		}
		if held, sum := r.slots("n1"); sum != 2 || held[job].epoch != "e1" {
			t.Errorf("slots %v, sum %d", held, sum)
		}
		for pool, members := range map[string][]string{"gpu": nil, "eu": {"n1"}, "us": {"n1"}} {
			if got := r.set(r.l.PoolMembers(pool)); !slices.Equal(got, members) {
				t.Errorf("pool %s has members %v", pool, got)
			}
		}
		if got := hear.drain(); len(got) != 1 || got[0].Kind != events.Register || got[0].Used != 2 ||
			got[0].MaxConcurrency != 2 || got[0].Status != freeslot.StatusDraining {
			t.Errorf("events %+v", got)
		}
		if r.status(job).State != freeslot.StateRunning || len(r.stream(r.l.Dispatch("n1"))) != 1 {
			t.Error("the job or its delivery is gone")
		}
		r.sound()
	})
}

// TestRegisterTakesOver: a new epoch ends what the old one owned, and nothing of the
// old one reaches it.
func TestRegisterTakesOver(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		old := r.register(richNode("n1"))
		running, cancelling := r.place("r1", 1, "n1"), r.place("", 2, "n1")
		if _, err := r.Cancel(r.ctx(), "", cancelling); err != nil {
			t.Fatal(err)
		}
		hear := r.listen()
		node := testNode("n1", 5)
		reg, err := r.Register(r.ctx(), node, "e2")
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(reg.Lost)
		if want := slices.Sorted(slices.Values([]string{running, cancelling})); !slices.Equal(reg.Lost, want) {
			t.Errorf("lost %v, want %v", reg.Lost, want)
		}
		if s := r.status(running); s.State != freeslot.StateWaiting || s.Failures != 1 || s.Attempt != 1 || s.Position != 1 || s.FinishedAtMS != 0 {
			t.Errorf("running job: %+v", s)
		}
		if s := r.status(cancelling); s.State != freeslot.StateCancelled || s.Error != nil {
			t.Errorf("cancelling job: %+v", s)
		}
		if held, sum := r.slots("n1"); len(held) != 0 || sum != 0 {
			t.Errorf("slots %v, sum %d", held, sum)
		}
		if r.exists(r.l.Dispatch("n1")) {
			t.Error("the dispatch stream outlived its epoch")
		}
		replies, err := r.Replies(r.ctx(), "r1", "", 0, 10)
		if err != nil || len(replies) != 2 || replies[1].Status.ID != running || !replies[1].Requeued || replies[1].Class != echo {
			t.Errorf("replies %+v, %v", replies, err)
		}
		if got := hear.drain(); len(got) != 1 || got[0].Kind != events.Register || got[0].Epoch != "e2" || got[0].Used != 0 {
			t.Errorf("events %+v", got)
		}
		if members := r.set(r.l.PoolMembers("gpu")); len(members) != 0 {
			t.Errorf("former pool has %v", members)
		}
		// The old epoch can do nothing any more.
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: old}); !errors.Is(err, ErrSuperseded) {
			t.Errorf("heartbeat of the old epoch: %v", err)
		}
		if _, err := r.Deregister(r.ctx(), "n1", old); !errors.Is(err, ErrSuperseded) {
			t.Errorf("deregister of the old epoch: %v", err)
		}
		if out, err := r.Complete(r.ctx(), succeed("n1", old, running)); err != nil || out != CompletedBefore {
			t.Errorf("complete of the old epoch: %v, %v", out, err)
		}
		r.sound()
	})
}

// TestRegisterSameEpochWithoutProfile: an operator, or a loss of data, removed the
// profile. The agent still runs its jobs and comes back under its epoch: they are
// not lost.
func TestRegisterSameEpochWithoutProfile(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 3))
		job := r.place("", 2, "n1")
		r.do("DEL", r.l.Node("n1"))
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{job, 1}}}); !errors.Is(err, ErrUnknownNode) {
			t.Fatalf("heartbeat: %v", err)
		}
		hear := r.listen()
		reg, err := r.Register(r.ctx(), testNode("n1", 3), epoch)
		if err != nil || len(reg.Lost) != 0 {
			t.Fatalf("register: %+v, %v", reg, err)
		}
		if got := hear.drain(); len(got) != 1 || got[0].Used != 2 {
			t.Errorf("events %+v", got)
		}
		reply, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{job, 1}}})
		if err != nil || reply.Used != 2 || len(reply.Start)+len(reply.Stop) != 0 {
			t.Errorf("heartbeat: %+v, %v", reply, err)
		}
		r.sound()
		r.end("n1", epoch, job)
		r.sound()
	})
}

func TestHeartbeat(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		named, unnamed, cancelled := r.place("", 1, "n1"), r.place("", 1, "n1"), r.place("", 2, "n1")
		if _, err := r.Cancel(r.ctx(), "", cancelled); err != nil {
			t.Fatal(err)
		}
		foreign := NewJobID(0)
		hear := r.listen()
		r.do("SET", r.l.Load("n1"), "{}")
		before, profile := r.nowMS(), r.hash(r.l.Node("n1"))
		reply, err := r.Heartbeat(r.ctx(), Heartbeat{
			Node: "n1", Epoch: epoch, Resources: json.RawMessage(`{"cpu": 0.5}`),
			Running: []Attempt{{named, 1}, {cancelled, 1}, {foreign, 1}, {named, 2}},
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(reply.Stop, func(a, b Attempt) int { return a.N - b.N })
		want := HeartbeatReply{
			Revision: r.revision(), Used: 4, Start: []Attempt{{unnamed, 1}},
			Stop: []Attempt{{foreign, 1}, {named, 2}}, Cancel: []Attempt{{cancelled, 1}},
		}
		if d := cmp.Diff(want, reply); d != "" {
			t.Errorf("reply (-want +got):\n%s", d)
		}
		beat, load := r.load("n1")
		if load != `{"cpu": 0.5}` {
			t.Errorf("load %q", load)
		}
		if beat < before || beat > r.nowMS() {
			t.Errorf("heartbeat at %d", beat)
		}
		if ttl := r.int("PTTL", r.l.Load("n1")); ttl != -1 {
			t.Errorf("TTL of the load is %d ms: with it goes when the node was last heard", ttl)
		}
		if r.scores(r.l.Revisions())["n1"] != float64(reply.Revision) {
			t.Error("the index has another revision")
		}
		if d := cmp.Diff(profile, r.hash(r.l.Node("n1"))); d != "" {
			t.Errorf("the tracked profile changed:\n%s", d)
		}
		expected := []events.Event{{
			Kind: events.Heartbeat, Revision: reply.Revision, AtMS: beat, Node: "n1", Epoch: epoch,
			Status: freeslot.StatusOnline, Used: 4, Body: `{"cpu": 0.5}`,
		}}
		if d := cmp.Diff(expected, hear.drain()); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		r.sound()
	})
}

func TestHeartbeatStatus(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		for _, status := range []freeslot.Status{freeslot.StatusDraining, freeslot.StatusDraining, "", freeslot.StatusOnline} {
			hear := r.listen()
			reply, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Status: status})
			if err != nil {
				t.Fatal(err)
			}
			want := status
			if want == "" {
				want = freeslot.StatusOnline
			}
			if got := r.field(r.l.Node("n1"), "status"); got != string(want) {
				t.Errorf("heartbeat %q: status %s", status, got)
			}
			if got := hear.drain(); len(got) != 1 || got[0].Status != want || got[0].Revision != reply.Revision || got[0].Body != "" {
				t.Errorf("heartbeat %q: events %+v", status, got)
			}
			p, err := r.Submit(r.ctx(), submission("", "n1"))
			if err != nil || p.Assigned != (want == freeslot.StatusOnline) {
				t.Fatalf("submit to a node that is %s: %+v, %v", want, p, err)
			}
			if p.Assigned {
				r.end("n1", epoch, slices.Collect(maps.Keys(first(r.slots("n1"))))[0])
			} else if p.Refusals[0].Reason != RefusedDraining {
				t.Errorf("refused as %s", p.Refusals[0].Reason)
			}
			r.sound()
		}
	})
}

func first[A, B any](a A, _ B) A { return a }

func TestHeartbeatTrims(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 3))
		for range 3 {
			r.place("", 1, "n1")
		}
		entries := r.stream(r.l.Dispatch("n1"))
		for _, c := range []struct {
			read string
			left int
		}{{"", 3}, {"0-0", 3}, {entries[1].ID, 2}, {entries[0].ID, 2}, {entries[2].ID, 1}} {
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Read: c.read}); err != nil {
				t.Fatal(err)
			}
			if got := len(r.stream(r.l.Dispatch("n1"))); got != c.left {
				t.Errorf("read %q: %d entries left, want %d", c.read, got, c.left)
			}
		}
	})
}

// TestHeartbeatOfStranger: neither an unknown node nor another epoch changes anything.
func TestHeartbeatOfStranger(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		r.unchanged("heartbeat of a stranger", func() {
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n2", Epoch: "e", Read: "9-9"}); !errors.Is(err, ErrUnknownNode) {
				t.Errorf("unknown node: %v", err)
			}
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: "e", Read: "9-9", Running: []Attempt{{job, 1}}}); !errors.Is(err, ErrSuperseded) {
				t.Errorf("other epoch: %v", err)
			}
		}, nil)
	})
}

func TestDeregister(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(richNode("n1"))
		other := r.register(richNode("n2"))
		job, cancelled := r.place("r1", 1, "n1"), r.place("r1", 1, "n1")
		kept := r.place("r1", 1, "n2")
		if _, err := r.Cancel(r.ctx(), "", cancelled); err != nil {
			t.Fatal(err)
		}
		r.unchanged("deregister of another epoch, of an unknown node", func() {
			if _, err := r.Deregister(r.ctx(), "n1", other); !errors.Is(err, ErrSuperseded) {
				t.Errorf("other epoch: %v", err)
			}
			if lost, err := r.Deregister(r.ctx(), "n3", other); err != nil || len(lost) != 0 {
				t.Errorf("unknown node: %v, %v", lost, err)
			}
		}, nil)
		hear := r.listen()
		lost, err := r.Deregister(r.ctx(), "n1", epoch)
		slices.Sort(lost)
		if want := slices.Sorted(slices.Values([]string{job, cancelled})); err != nil || !slices.Equal(lost, want) {
			t.Fatalf("deregister: %v, %v; want %v", lost, err, want)
		}
		for _, key := range []string{r.l.Node("n1"), r.l.Load("n1"), r.l.Slots("n1"), r.l.Dispatch("n1")} {
			if r.exists(key) {
				t.Errorf("key %s is still there", key)
			}
		}
		if got := r.set(r.l.PoolMembers("gpu")); !slices.Equal(got, []string{"n2"}) {
			t.Errorf("pool has %v", got)
		}
		if got := r.scores(r.l.Revisions()); got["-n1"] != float64(r.revision()) {
			t.Errorf("revisions %v at revision %d", got, r.revision())
		}
		if got := hear.drain(); len(got) != 1 || got[0].Kind != events.Offline || got[0].Node != "n1" || got[0].Epoch != epoch || got[0].Used != 0 {
			t.Errorf("events %+v", got)
		}
		if s := r.status(job); s.State != freeslot.StateWaiting || s.Failures != 0 || s.Attempt != 1 {
			t.Errorf("job %+v", s)
		}
		if s := r.status(cancelled); s.State != freeslot.StateCancelled {
			t.Errorf("cancelled job %+v", s)
		}
		if s := r.status(kept); s.State != freeslot.StateRunning {
			t.Errorf("job of the other node %+v", s)
		}
		if replies, err := r.Replies(r.ctx(), "r1", "", 0, 10); err != nil || len(replies) != 3 {
			t.Errorf("replies %+v, %v", replies, err)
		}
		r.sound()

		if _, err := r.Register(r.ctx(), testNode("n1", 1), "e9"); err != nil {
			t.Fatal(err)
		}
		if _, dead := r.scores(r.l.Revisions())["-n1"]; dead || r.field(r.l.Version(), "tombstones") != "0" {
			t.Error("the tombstone of a node that came back is still there")
		}
		r.sound()
	})
}

// TestTombstonesAreBounded: also when many nodes died in silence, and so are older
// than every tombstone.
func TestTombstonesAreBounded(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const silent = 150
		r.tombstones = 3
		for i := range silent {
			r.register(testNode(fmt.Sprintf("silent-%d", i), 1))
		}
		leave := func(i int) {
			id := fmt.Sprintf("left-%d", i)
			epoch := r.register(testNode(id, 1))
			if _, err := r.Deregister(r.ctx(), id, epoch); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			leave(i)
		}
		var left []string
		for member := range r.scores(r.l.Revisions()) {
			if member[0] == '-' {
				left = append(left, member)
			}
		}
		slices.Sort(left)
		if want := []string{"-left-7", "-left-8", "-left-9"}; !slices.Equal(left, want) {
			t.Errorf("tombstones %v, want %v", left, want)
		}
		r.sound()
		floor, _ := strconv.ParseUint(r.field(r.l.Version(), "floor"), 10, 64)
		for _, c := range []struct {
			since      Revision
			incomplete bool
		}{{0, false}, {1, true}, {floor - 1, true}, {floor, false}, {r.revision(), false}} {
			ch, err := r.Changes(r.ctx(), c.since, 1000)
			if err != nil || ch.Incomplete != c.incomplete {
				t.Errorf("changes since %d (floor %d): incomplete %v, %v", c.since, floor, ch.Incomplete, err)
			}
		}
	})
}

// TestRegisterChangedFields: a profile that differs in one field alone is another one.
func TestRegisterChangedFields(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		node := richNode("n1")
		epoch := r.register(node)
		for name, change := range map[string]func(){
			"max_concurrency":    func() { node.MaxConcurrency++ },
			"pool_ids":           func() { node.Pools = []string{"other"} },
			"capabilities":       func() { node.Languages.ASR = []string{"it"} },
			"installed_services": func() { node.Services = []freeslot.Service{{Name: "other"}} },
			"labels":             func() { node.Labels = map[string]string{"zone": "other"} },
			"features_supported": func() { node.Features = map[string]bool{"other": true} },
		} {
			before, revision := r.field(r.l.Node("n1"), name), r.revision()
			change()
			hear := r.listen()
			// An operator may have put anything there: the event can be read nevertheless.
			r.do("HSET", r.l.Node("n1"), "status", "on line")
			reg, err := r.Register(r.ctx(), node, epoch)
			if err != nil || reg.Revision != revision+1 || r.field(r.l.Node("n1"), name) == before {
				t.Errorf("%s: %+v after revision %d, %v, is %s", name, reg, revision, err, r.field(r.l.Node("n1"), name))
			}
			if heard := hear.drain(); len(heard) != 1 || heard[0].Kind != events.Register {
				t.Errorf("%s: events %+v", name, heard)
			}
		}
	})
}
