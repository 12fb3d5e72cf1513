package console

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/socket"
)

// seen is a node as a viewer of the topic fleet has it.
type seen struct {
	ID   string
	Cell uint8
	figures
}

// fleetView is the obvious viewer: it keeps nodes by place.
type fleetView struct {
	nodes   map[int]seen
	through uint64
}

// take applies a frame.
func (v *fleetView) take(text []byte) error {
	base, through := binary.LittleEndian.Uint64(text[18:]), binary.LittleEndian.Uint64(text[26:])
	if text[0] != fleetVersion || base > v.through && text[1]&fleetAnew == 0 {
		return fmt.Errorf("a frame %v relative to %d for a viewer at %d", text[:2], base, v.through)
	}
	if text[1]&fleetAnew != 0 {
		v.nodes = map[int]seen{}
	}
	v.through = through
	count, rest, place := binary.LittleEndian.Uint32(text[42:]), text[fleetHead:], 0
	for range count {
		gap, n := binary.Uvarint(rest)
		rest = rest[n:]
		place += int(gap)
		state := rest[0]
		rest = rest[1:]
		if state == byte(nodeGone) {
			delete(v.nodes, place)
			place++
			continue
		}
		s := v.nodes[place]
		s.figures = figures{
			state: nodeState(state &^ fleetNamed), used: binary.LittleEndian.Uint16(rest), max: binary.LittleEndian.Uint16(rest[2:]),
			cpu: rest[4], memory: rest[5], gpu: rest[6], age: rest[7],
		}
		rest = rest[8:]
		if state&fleetNamed != 0 {
			s.Cell, s.ID = rest[0], string(rest[2:2+rest[1]])
			rest = rest[2+rest[1]:]
		}
		v.nodes[place] = s
		place++
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes follow the last node", len(rest))
	}
	return nil
}

func (v *fleetView) byID() map[string]seen {
	all := map[string]seen{}
	for _, s := range v.nodes {
		all[s.ID] = s
	}
	return all
}

// slow is a viewer who reads when the test says so: one frame of each topic waits for it.
type slow struct {
	pending map[string][]byte
	full    bool
	fleet   fleetView
	// nodes are the nodes' epochs.
	nodes    map[string]string
	revision uint64
}

func (s *slow) put(topic string, frame []byte) socket.Outcome {
	switch before := s.pending[topic]; {
	case s.full:
		return socket.Dropped
	case before != nil:
		s.pending[topic] = frame
		return socket.Replaced
	}
	s.pending[topic] = frame
	return socket.Queued
}

func (s *slow) waits(topic string) bool { return s.pending[topic] != nil }

// read takes the frame of a topic that waits. listed is what GET /v1/nodes answers.
func (s *slow) read(topic string, listed map[string]string) error {
	text := s.pending[topic]
	delete(s.pending, topic)
	if text == nil {
		return nil
	}
	if topic == fleetTopic {
		return s.fleet.take(text)
	}
	var f struct {
		Data struct {
			Base, Revision uint64
			Reload         bool
			Changed        []struct{ ID, Epoch string }
			Gone           []string
		}
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if f.Data.Base > s.revision {
		return fmt.Errorf("a frame relative to %d for a viewer at %d", f.Data.Base, s.revision)
	}
	s.revision = f.Data.Revision
	if f.Data.Reload {
		s.nodes = maps.Clone(listed)
	}
	for _, id := range f.Data.Gone {
		delete(s.nodes, id)
	}
	for _, n := range f.Data.Changed {
		s.nodes[n.ID] = n.Epoch
	}
	return nil
}

// TestRosterTwin: whatever happens to nodes, and however slowly viewers read, they have the whole
// state once they have read what waits for them.
func TestRosterTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fleet, agents := map[string]Node{}, 0
		epochs := func() map[string]string {
			all := map[string]string{}
			for id, n := range fleet {
				all[id] = n.Epoch
			}
			return all
		}
		h := newHub(newMetrics(nil))
		h.roster.part, h.roster.remembered = rapid.IntRange(120, 2000).Draw(t, "bytes"), rapid.IntRange(1, 9).Draw(t, "remembered")
		h.roster.news = rapid.IntRange(1, 20).Draw(t, "news")
		look := Look{SilenceLimit: 8 * time.Second}
		h.sources = Sources{
			Now: time.Now, Look: func() Look { return look },
			Nodes: func(see func(*Node)) {
				for _, n := range fleet {
					see(&n)
				}
			},
			Node: func(id string) (any, bool) {
				n, there := fleet[id]
				return map[string]string{"id": n.ID, "epoch": n.Epoch}, there
			},
		}
		topics := []string{fleetTopic, nodesTopic}
		viewers := make([]*slow, 2)
		watch := func(i int, topic string) {
			k, who := kinds[topic], identity.Principal{}
			h.leave(viewers[i], topicKey{name: topic})
			delete(viewers[i].pending, topic)
			h.watch(viewers[i], topicKey{name: topic}, k, &who)
		}
		for i := range viewers {
			viewers[i] = &slow{pending: map[string][]byte{}, nodes: map[string]string{}}
			watch(i, fleetTopic)
			watch(i, nodesTopic)
		}
		tell := func() {
			for _, topic := range topics {
				h.roster.at = time.Time{}
				all := h.topics[topicKey{name: topic}]
				for _, g := range all.viewers {
					g.at = time.Time{}
				}
				h.tell(all)
			}
		}
		node := rapid.Custom(func(t *rapid.T) Node {
			id := rapid.IntRange(0, 12).Draw(t, "id")
			said := fmt.Sprintf(`{"cpu_usage":%d.5}`, rapid.IntRange(-1, 1).Draw(t, "cpu"))
			return Node{
				ID: fmt.Sprintf("node-%d", id), Cell: id % 4, Used: rapid.IntRange(-1, 70_000).Draw(t, "used"), Max: 4,
				Silent: rapid.Bool().Draw(t, "silent"), Age: time.Duration(rapid.IntRange(-1, 100).Draw(t, "age")) * time.Second,
				Status:    rapid.SampledFrom([]freeslot.Status{freeslot.StatusOnline, freeslot.StatusDrained}).Draw(t, "status"),
				Resources: &said,
			}
		})
		read := func(v *slow, topic string) {
			if err := v.read(topic, epochs()); err != nil {
				t.Fatalf("%s: %v; want a frame that the viewer can apply", topic, err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				for _, n := range rapid.SliceOfN(node, 1, 4).Draw(t, "nodes") {
					// No epoch comes back, as with agents: a list that was read between two looks would
					// have one that the roster never saw, and nothing would tell of its end.
					n.Epoch = fleet[n.ID].Epoch
					if n.Epoch == "" || rapid.Bool().Draw(t, "another agent") {
						agents++
						n.Epoch = fmt.Sprint(agents)
					}
					fleet[n.ID] = n
				}
			},
			"leave": func(t *rapid.T) {
				for _, n := range rapid.SliceOfN(node, 1, 4).Draw(t, "nodes") {
					delete(fleet, n.ID)
				}
			},
			"configure": func(*rapid.T) { look.Config++ },
			"tell":      func(*rapid.T) { tell() },
			"read": func(t *rapid.T) {
				read(rapid.SampledFrom(viewers).Draw(t, "viewer"), rapid.SampledFrom(topics).Draw(t, "topic"))
			},
			"full": func(t *rapid.T) {
				v := rapid.SampledFrom(viewers).Draw(t, "viewer")
				v.full = !v.full
			},
			"come back": func(t *rapid.T) {
				watch(rapid.IntRange(0, len(viewers)-1).Draw(t, "viewer"), rapid.SampledFrom(topics).Draw(t, "topic"))
			},
		})
		want := map[string]seen{}
		for id, n := range fleet {
			w := seen{ID: id, Cell: uint8(n.Cell), figures: figures{
				state: stateOf(&n), used: clamp(n.Used), max: 4, age: ageCode(n.Age, look.SilenceLimit/2),
			}}
			w.cpu, w.memory, w.gpu = shares(n.Resources)
			want[id] = w
		}
		for i, v := range viewers {
			v.full = false
			for n := 0; v.fleet.through < h.roster.changes || v.revision < h.roster.changes || n == 0; n++ {
				tell()
				read(v, fleetTopic)
				read(v, nodesTopic)
				if n > 100 {
					t.Fatalf("viewer %d is at %d of %d after 100 reads; want the end", i, v.fleet.through, h.roster.changes)
				}
			}
			if diff := cmp.Diff(want, v.fleet.byID(), cmp.AllowUnexported(seen{}, figures{})); diff != "" {
				t.Fatalf("viewer %d has other nodes; want the fleet (-want +got):\n%s", i, diff)
			}
			// A list can have a node that came and left between two looks. Who there is, the fleet says.
			maps.DeleteFunc(v.nodes, func(id, _ string) bool { return v.fleet.byID()[id].ID == "" })
			if diff := cmp.Diff(epochs(), v.nodes); diff != "" {
				t.Fatalf("viewer %d has other nodes; want the fleet (-want +got):\n%s", i, diff)
			}
		}
		if places := len(h.roster.rows); places > 13 {
			t.Fatalf("the roster has %d places; want no more than there were nodes at a time", places)
		}
	})
}

// TestAgeCodes: the codes of ages are part of the protocol, and a node that is well does not change
// its code.
func TestAgeCodes(t *testing.T) {
	t.Parallel()
	unit := 4 * time.Second
	got := map[time.Duration]uint8{}
	for _, age := range []time.Duration{-1, 0, unit, unit + 1, 2 * unit, 4 * unit, 10000 * time.Hour, 1<<63 - 1} {
		got[age] = ageCode(age, unit)
	}
	want := map[time.Duration]uint8{-1: 255, 0: 0, unit: 0, unit + 1: 1, 2 * unit: 9, 4 * unit: 17, 10000 * time.Hour: 185, 1<<63 - 1: 249}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other codes (-want +got):\n%s", diff)
	}
}

// TestShares: an agent may say anything.
func TestShares(t *testing.T) {
	t.Parallel()
	for said, want := range map[string][3]uint8{
		"":                                    {unknown, unknown, unknown},
		"{":                                   {unknown, unknown, unknown},
		`{"cpu_usage":0.314,"gpu_usage":1}`:   {31, unknown, 100},
		`{"cpu_usage":-7,"memory_usage":1e9}`: {0, 100, unknown},
		`{"memory_usage":0.5,"metrics":{"gpu":{"utilization":0.25},"process":{"cpu_usage":0.9}}}`: {unknown, 50, 25},
		`{"cpu_usage":"much","memory_usage":0.5}`:                                                 {unknown, 50, unknown},
	} {
		cpu, memory, gpu := shares(&said)
		if got := [3]uint8{cpu, memory, gpu}; got != want {
			t.Errorf("%s is read as %v; want %v", said, got, want)
		}
	}
	if cpu, memory, gpu := shares(nil); cpu != unknown || memory != unknown || gpu != unknown {
		t.Errorf("nothing is read as %d, %d, %d; want unknown shares", cpu, memory, gpu)
	}
}

// TestFleetTopics: the map comes as binary frames twice a second, or in a snapshot as JSON; nodes
// say when to read them anew; and without viewers no one looks at nodes.
func TestFleetTopics(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		s.set("/v1/nodes/n1", `{"node_id":"n1"}`)
		p := s.mustOpen(identity.Viewer)
		p.send(`{"want":["fleet","nodes","node:n1"]}`)
		got := map[string]string{}
		var view fleetView
		for len(got) < 3 {
			kind, text, err := p.Read(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if kind == websocket.MessageBinary {
				if err := view.take(text); err != nil {
					t.Fatal(err)
				}
				got["fleet"] = slices.Sorted(maps.Keys(view.byID()))[0]
				continue
			}
			var f frame
			if err := json.Unmarshal(text, &f); err != nil {
				t.Fatal(err)
			}
			got[f.Topic] = string(f.Data)
		}
		want := map[string]string{"fleet": "n1", "nodes": `{"base":0,"revision":3,"reload":true}`, "node:n1": `{"node_id":"n1"}`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("other frames (-want +got):\n%s", diff)
		}
		if asked := s.calls(); len(asked) != 1 || asked["/v1/nodes/n1"] == 0 {
			t.Errorf("the API is asked %v; want the one node alone", asked)
		}
		answer := ask(s.Console, "GET", "/console/snapshot?topic=fleet", "Authorization", "Bearer "+string(identity.Viewer))
		var whole struct{ Frames []struct{ Data string } }
		if err := json.Unmarshal(answer.Body.Bytes(), &whole); err != nil || len(whole.Frames) != 1 {
			t.Fatalf("a snapshot is %s (%v); want a frame", answer.Body, err)
		}
		text, err := base64.StdEncoding.DecodeString(whole.Frames[0].Data)
		if err == nil {
			err = new(fleetView).take(text)
		}
		if err != nil {
			t.Errorf("the frame of a snapshot: %v; want the one of the topic", err)
		}
		p.send(`{"want":[]}`)
		synctest.Wait()
		time.Sleep(period)
		before := s.looks.Load()
		time.Sleep(time.Minute)
		if n := s.looks.Load() - before; n > 0 {
			t.Errorf("while no one looks the cache is looked at %d times; want none", n)
		}
		_ = p.CloseNow()
	})
}

// TestReplicas: the overview has all replicas, with what this one knows of itself, and keeps the
// last list while Redis does not tell.
func TestReplicas(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		s.set("/v1/replicas/status", `{"replicas":[{"name":"r0","build":"v0","ready":true},{"name":"r1","ready":false}]}`)
		p := s.mustOpen(identity.Viewer)
		p.send(`{"want":["overview"]}`)
		replicas := func() (list string) {
			var data struct{ Replicas json.RawMessage }
			if err := json.Unmarshal(p.next().Data, &data); err != nil {
				t.Fatal(err)
			}
			return string(data.Replicas)
		}
		const want = `[{"name":"r0","build":"v0","ready":true},{"name":"r1","build":"v1","ready":true}]`
		for range 3 { // the first comes before Redis has answered
			if got := replicas(); got == want {
				break
			}
		}
		s.set("/v1/replicas/status", `404 {"code":"unavailable","message":"the store does not answer"}`)
		for range 3 {
			if got := replicas(); got != want {
				t.Errorf("the replicas are %s; want %s", got, want)
			}
		}
		_ = p.CloseNow()
	})
}
