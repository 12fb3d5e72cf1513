package locked

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	fleetLimit = 6
	cells      = 3
	limit      = 8 * time.Second
)

// Small universes, so that fits and collisions are common. Who uses them does not run beside others
// that do: a generator makes its name when it is first drawn from, which rapid 1.3 does not guard.
var (
	genID      = rapid.SampledFrom(names("n", fleetLimit))
	genTag     = rapid.SampledFrom([]string{"de", "en", "zh-Hant"})
	genService = rapid.SampledFrom([]string{"asr", "tts"})
	genPool    = rapid.SampledFrom([]string{"p", "q", "r"})
	genLabels  = rapid.MapOfN(rapid.SampledFrom([]string{"zone", "gpu"}), rapid.SampledFrom([]string{"a", "b"}), 0, 1)
)

func names(prefix string, count int) (out []string) {
	for i := range count {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// change is one step of a history. Exactly one of the pointers is set.
type change struct {
	put       *cell.NodeState
	heartbeat *heartbeat
	remove    *string
	config    *selection.Config
}

type heartbeat struct {
	node      string
	used      int
	status    freeslot.Status
	seenAt    int64
	resources string
}

func genState(t *rapid.T) *cell.NodeState {
	return &cell.NodeState{
		Node: freeslot.Node{
			ID: genID.Draw(t, "id"), MaxConcurrency: rapid.IntRange(1, 3).Draw(t, "max"),
			Services:  rapid.Map(rapid.SliceOfNDistinct(genService, 0, 2, rapid.ID), asServices).Draw(t, "services"),
			Languages: freeslot.Languages{ASR: rapid.SliceOfN(genTag, 0, 2).Draw(t, "asr"), TTS: rapid.SliceOfN(genTag, 0, 2).Draw(t, "tts")},
			Pools:     rapid.SliceOfNDistinct(genPool, 0, 2, rapid.ID).Draw(t, "node pools"),
			Labels:    genLabels.Draw(t, "labels"),
		},
		Epoch: rapid.SampledFrom([]string{"e1", "e2"}).Draw(t, "epoch"), Status: genStatus.Draw(t, "status"),
		Used: rapid.IntRange(0, 3).Draw(t, "used"), Resources: json.RawMessage(genResources.Draw(t, "resources")),
		Revision: rapid.Uint64Range(1, 9).Draw(t, "revision"), RegisteredAtMS: rapid.Int64Range(1, 3).Draw(t, "registered"),
	}
}

var (
	genStatus    = rapid.SampledFrom([]freeslot.Status{freeslot.StatusOnline, freeslot.StatusOnline, freeslot.StatusDraining, "offline"})
	genResources = rapid.SampledFrom([]string{"", "{}", `{"cpu":1}`})
)

func asServices(names []string) []freeslot.Service {
	out := []freeslot.Service{}
	for _, n := range names {
		out = append(out, freeslot.Service{Name: n})
	}
	return out
}

func genConfig(t *rapid.T) *selection.Config {
	cfg := &selection.Config{Enabled: rapid.Bool().Draw(t, "enabled"), Mode: rapid.SampledFrom([]selection.Mode{selection.ModeTwoLevel, selection.ModeFlat}).Draw(t, "mode")}
	for _, id := range rapid.SliceOfNDistinct(genPool, 0, 2, rapid.ID).Draw(t, "pools") {
		cfg.Pools = append(cfg.Pools, selection.Pool{
			ID: id, SourceLanguages: rapid.SliceOfNDistinct(genTag, 0, 2, rapid.ID).Draw(t, "pool source"), Labels: genLabels.Draw(t, "pool labels"),
		})
	}
	return cfg
}

func genChange(t *rapid.T) change {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1, 2:
		return change{put: genState(t)}
	case 3:
		id := genID.Draw(t, "gone")
		return change{remove: &id}
	case 4:
		return change{config: genConfig(t)}
	default:
		return change{heartbeat: &heartbeat{
			node: genID.Draw(t, "beating"), used: rapid.IntRange(0, 3).Draw(t, "used"), status: genStatus.Draw(t, "status"),
			seenAt: rapid.Int64Range(-1, 3).Draw(t, "at") * int64(limit), resources: genResources.Draw(t, "resources"),
		}}
	}
}

func apply(n *State, c change) {
	switch {
	case c.put != nil:
		n.Put(c.put)
	case c.heartbeat != nil:
		h := c.heartbeat
		n.Heartbeat(h.node, h.used, h.status, h.seenAt, h.resources)
	case c.remove != nil:
		n.Remove(*c.remove)
	case c.config != nil:
		n.SetConfig(c.config)
	}
}

// twin keeps a list and computes everything from it each time.
type twin struct {
	nodes []twinNode
	cfg   *selection.Config
}

type twinNode struct {
	state  cell.NodeState
	seenAt []int64
}

func (w *twin) apply(c change) {
	at := func(id string) int {
		return slices.IndexFunc(w.nodes, func(n twinNode) bool { return n.state.Node.ID == id })
	}
	switch {
	case c.put != nil:
		i := at(c.put.Node.ID)
		if i < 0 {
			w.nodes = append(w.nodes, twinNode{})
			i = len(w.nodes) - 1
		}
		w.nodes[i].state = *c.put
	case c.heartbeat != nil:
		if i := at(c.heartbeat.node); i >= 0 {
			n := &w.nodes[i]
			n.state.Used, n.state.Status, n.state.Resources = c.heartbeat.used, c.heartbeat.status, json.RawMessage(c.heartbeat.resources)
			n.seenAt = append(n.seenAt, c.heartbeat.seenAt)
		}
	case c.remove != nil:
		w.nodes = slices.DeleteFunc(w.nodes, func(n twinNode) bool { return n.state.Node.ID == *c.remove })
	case c.config != nil:
		w.cfg = c.config
	}
}

func (w *twin) states() []cell.NodeState {
	out := []cell.NodeState{}
	for _, n := range w.nodes {
		s := n.state
		if s.Status != freeslot.StatusOnline {
			s.Status = freeslot.StatusDraining
		}
		if len(s.Resources) == 0 {
			s.Resources = nil
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b cell.NodeState) int {
		if a.Node.ID < b.Node.ID {
			return -1
		}
		return 1
	})
	return out
}

// choosable asks for each node alone whether it would be chosen.
func (w *twin) choosable(service string, r *freeslot.Requirement, q selection.Query) []string {
	out := []string{}
	for _, n := range w.nodes {
		s := n.state
		fresh := selection.NewNode(selection.Compile(&s.Node), cell.NodeCell(s.Node.ID, cells))
		fresh.SetUsed(s.Used)
		fresh.SetDraining(s.Status != freeslot.StatusOnline)
		for _, at := range n.seenAt {
			fresh.Seen(at)
		}
		class := selection.NewClass([]*selection.Node{fresh}, w.cfg, service, r)
		if got := class.Choose(make([]*selection.Node, 0, 1), &q, selection.NewSource(1)); len(got) == 1 {
			out = append(out, s.Node.ID)
		}
	}
	slices.Sort(out)
	return out
}

// chooses has the classes that choosable chooses from.
type chooses interface {
	Class(service string, r *freeslot.Requirement) *selection.Class
}

// choosable are all nodes that a choice can bring, of all cells.
func choosable(n chooses, service string, r *freeslot.Requirement, q selection.Query) []string {
	found := map[string]bool{}
	for i := range cells {
		q.Want, q.Skip = 512, selection.Only(i)
		for _, node := range n.Class(service, r).Choose(make([]*selection.Node, 0, 512), &q, selection.NewSource(1)) {
			found[node.ID()] = true
		}
	}
	out := []string{}
	for id := range found {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func genRequirement(t *rapid.T) *freeslot.Requirement {
	orNone := func(g *rapid.Generator[string], label string) string {
		return rapid.OneOf(rapid.Just(""), g).Draw(t, label)
	}
	return &freeslot.Requirement{Pool: orNone(genPool, "pool"), SourceLanguage: orNone(genTag, "source"), Labels: genLabels.Draw(t, "wanted")}
}

// TestSuite: after every step of a random history, the copy shows what the twin shows, and can
// choose what the twin can choose.
func TestSuite(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t)
		n, w := New(Config{Cells: cells, Selection: cfg}), &twin{cfg: cfg}
		asked := genQuestions(t)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			c := genChange(t)
			w.apply(c)
			apply(n, c)
			if diff := gocmp.Diff(w.states(), n.States()); diff != "" {
				t.Fatalf("-twin +copy\n%s", diff)
			}
			for _, s := range w.states() {
				if got, ok := n.State(s.Node.ID); !ok || gocmp.Diff(s, got) != "" {
					t.Fatalf("State(%s) is %v %v", s.Node.ID, got, ok)
				}
			}
			now := rapid.Int64Range(0, 2).Draw(t, "now") * int64(limit)
			for _, a := range asked {
				q := selection.Query{Now: now, SilenceLimit: limit, Slots: a.slots}
				want := w.choosable(a.service, a.requirement, q)
				if got := choosable(n, a.service, a.requirement, q); !slices.Equal(got, want) {
					t.Fatalf("the copy can choose %q, the twin %q", got, want)
				}
			}
		}
	})
}

// question is asked after every step: always the same ones, so that lists have been built before a
// change makes them out of date.
type question struct {
	service     string
	requirement *freeslot.Requirement
	slots       int
}

func genQuestions(t *rapid.T) []question {
	asked := []question{{service: "tts", requirement: &freeslot.Requirement{}, slots: 1}}
	for range 2 {
		asked = append(asked, question{genService.Draw(t, "service"), genRequirement(t), rapid.IntRange(1, 2).Draw(t, "slots")})
	}
	return asked
}
