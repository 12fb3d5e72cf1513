package locked

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

var (
	_ Nodes          = (*State)(nil)
	_ Nodes          = (*Plain)(nil)
	_ cache.Mirror   = (*State)(nil)
	_ Follower       = (*cache.Cache)(nil)
	_ dispatch.Nodes = (*Path)(nil)
	_ Picture        = (*cache.Cache)(nil)
	_ Picture        = (*State)(nil)
)

// both has two pictures mirror one cache.
type both struct{ all []Nodes }

func (b both) Put(s *cell.NodeState) {
	for _, n := range b.all {
		n.Put(s)
	}
}

func (b both) Heartbeat(id string, used int, status freeslot.Status, seenAt int64, resources string) {
	for _, n := range b.all {
		n.Heartbeat(id, used, status, seenAt, resources)
	}
}

func (b both) Remove(id string) {
	for _, n := range b.all {
		n.Remove(id)
	}
}

func (b both) SetConfig(cfg *selection.Config) {
	for _, n := range b.all {
		n.SetConfig(cfg)
	}
}

// sourceNow is the clock of a source, in ms; it stands still.
const sourceNow = 1_000_000_000

// source is one cell of a Redis that the test writes.
type source struct {
	mu       sync.Mutex // guards the rest
	revision cell.Revision
	nodes    map[string]cell.NodeState
}

func (s *source) set(state cell.NodeState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	state.Revision = s.revision
	s.nodes[state.Node.ID] = state
}

func (s *source) get(id string) (cell.NodeState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.nodes[id]
	return state, ok && !state.Gone
}

func (s *source) Changes(_ context.Context, since cell.Revision, _ int) (cell.Changes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := cell.Changes{Generation: "g", Revision: s.revision, Next: s.revision, NowMS: sourceNow}
	for _, n := range s.nodes {
		if n.Revision > since {
			n.Node.Pools, n.Node.Services = slices.Clone(n.Node.Pools), slices.Clone(n.Node.Services)
			out.Nodes = append(out.Nodes, n)
		}
	}
	slices.SortFunc(out.Nodes, func(a, b cell.NodeState) int { return int(a.Revision) - int(b.Revision) })
	return out, nil
}

func (s *source) Nodes(context.Context, []string) (cell.Changes, error) {
	return cell.Changes{NowMS: sourceNow}, nil
}
func (s *source) NodeRevision(context.Context, string) (cell.Revision, error) { return 0, nil }
func (s *source) History(context.Context) (string, error)                     { return "h", nil }
func (s *source) HeartbeatLimit() time.Duration                               { return time.Minute }

// TestMirror: whatever happens in Redis, the pictures that mirror the cache show what
// it shows and can choose what it can choose, which is what the twin says.
func TestMirror(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t)
		state, plain, w := New(Config{Cells: cells}), NewPlain(Config{Cells: cells}), &twin{cfg: cfg}
		var feeds []cache.Feed
		var sources []*source
		for range cells {
			s := &source{nodes: make(map[string]cell.NodeState)}
			sources, feeds = append(sources, s), append(feeds, cache.Feed{Source: s})
		}
		c := cache.New(cache.Config{Selection: cfg, Mirror: both{[]Nodes{state, plain}}, RefreshInterval: time.Hour}, feeds, zap.NewNop(), nil)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		}()
		asked := genQuestions(t)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				if step := genChange(t); step.config != nil {
					c.SetConfig(step.config)
					w.cfg = step.config
				} else {
					write(t, sources, step)
				}
			}
			if err := c.Sync(ctx); err != nil {
				t.Fatal(err)
			}
			w.copy(sources, c.Now())
			for _, a := range asked {
				q := selection.Query{Now: c.Now(), SilenceLimit: c.SilenceLimit(), Slots: a.slots}
				want := w.choosable(a.service, a.requirement, q)
				c.Settle(a.service, a.requirement) // a cache uses the former list for a while
				for name, n := range map[string]chooses{"cache": c, "state": state, "plain": plain, "path": NewPath(c, state)} {
					if got := choosable(n, a.service, a.requirement, q); !slices.Equal(got, want) {
						t.Fatalf("%s can choose %q, the twin %q", name, got, want)
					}
				}
			}
			untold := cmpopts.IgnoreFields(cell.NodeState{}, "Revision", "LastHeartbeatMS")
			for name, n := range map[string]Nodes{"state": state, "plain": plain} {
				if diff := gocmp.Diff(c.States(), n.States(), untold); diff != "" {
					t.Fatalf("-cache +%s\n%s", name, diff)
				}
			}
			if d := Compare(c.States(), state.States()); d != nil || len(c.States()) != len(w.nodes) || state.Size() != len(w.nodes) {
				t.Fatalf("%d nodes, %d, %d: %v", len(w.nodes), c.Size(), state.Size(), d)
			}
		}
	})
}

// write has one change happen in the cells.
func write(t *rapid.T, sources []*source, c change) {
	at := func(id string) *source { return sources[cell.NodeCell(id, len(sources))] }
	seen := rapid.SampledFrom([]int64{sourceNow, sourceNow - 3_600_000}).Draw(t, "seen")
	switch {
	case c.put != nil:
		s := *c.put
		s.LastHeartbeatMS = seen
		at(s.Node.ID).set(s)
	case c.remove != nil:
		if s, ok := at(*c.remove).get(*c.remove); ok {
			at(*c.remove).set(cell.NodeState{Node: freeslot.Node{ID: s.Node.ID}, Gone: true})
		}
	case c.heartbeat != nil:
		h := c.heartbeat
		if s, ok := at(h.node).get(h.node); ok {
			s.Used, s.Status, s.Resources, s.LastHeartbeatMS = h.used, h.status, json.RawMessage(h.resources), seen
			at(h.node).set(s)
		}
	}
}

// copy takes over what the cells have. What the twin knew before counts for one
// thing: a sign of life is not taken back by an earlier one.
func (w *twin) copy(sources []*source, now int64) {
	before := make(map[string]twinNode)
	for _, n := range w.nodes {
		before[n.state.Node.ID] = n
	}
	w.nodes = nil
	for _, s := range sources {
		for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
			state, ok := s.get(id)
			if !ok {
				continue
			}
			n := before[id]
			n.state = state
			n.seenAt = append(n.seenAt, now-(sourceNow-state.LastHeartbeatMS)*int64(time.Millisecond))
			w.nodes = append(w.nodes, n)
		}
	}
}

// chooses is the part of a picture that choosable needs.
type chooses interface {
	Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node
}
