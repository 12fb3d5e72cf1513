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
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

var (
	_ cache.Mirror   = (*State)(nil)
	_ Follower       = (*cache.Cache)(nil)
	_ dispatch.Nodes = (*Adapter)(nil)
	_ Picture        = (*cache.Cache)(nil)
	_ Picture        = (*State)(nil)
)

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
func (s *source) Heard(context.Context, int64, int, cell.Quiet) (cell.Heard, error) {
	return cell.Heard{}, nil
}

func (s *source) History(context.Context) (string, error) { return "h", nil }
func (s *source) HeartbeatLimit() time.Duration           { return time.Minute }

// TestMirror: after any history in Redis, the copy that mirrors the cache shows what the cache
// shows, and can choose what the cache and the twin can choose.
func TestMirror(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t)
		state, w := New(Config{Cells: cells}), &twin{cfg: cfg}
		var feeds []cache.Feed
		var sources []*source
		for range cells {
			s := &source{nodes: make(map[string]cell.NodeState)}
			sources, feeds = append(sources, s), append(feeds, cache.Feed{Source: s})
		}
		c := cache.New(cache.Config{Selection: cfg, Mirror: state, RefreshInterval: time.Hour}, feeds, zap.NewNop(), nil)
		ctx, cancel := context.WithTimeout(context.Background(), 10*waittest.Limit)
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
				for name, n := range map[string]chooses{"cache": c, "state": state, "adapter": NewAdapter(c, state)} {
					if got := choosable(n, a.service, a.requirement, q); !slices.Equal(got, want) {
						t.Fatalf("%s can choose %q, the twin %q", name, got, want)
					}
				}
			}
			unknown := cmpopts.IgnoreFields(cell.NodeState{}, "Revision", "LastHeartbeatMS")
			if diff := gocmp.Diff(c.States(), state.States(), unknown); diff != "" {
				t.Fatalf("-cache +state\n%s", diff)
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

// copy copies the cells' nodes. Of what the twin knew before only the signs of life count: an
// earlier one does not replace a later one.
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
