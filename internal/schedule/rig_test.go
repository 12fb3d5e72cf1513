package schedule

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) {
	scripttest.Guard(scripts)
	acltest.Main(m, script.RoleReplica, cell.Access, presence.Access, access)
}

// patience bounds a single call.
const patience = waittest.Limit

const tenant = "acme"

// rig is cells with keys of their own, and a service.
type rig struct {
	*Service
	t      *testing.T
	redis  *redistest.Target
	client rueidis.Client
	set    *cell.Set
	bounds Bounds
}

func newRig(t *testing.T, redis *redistest.Target, cells int) *rig {
	t.Helper()
	r := &rig{t: t, redis: redis, client: redis.Client(t), bounds: DefaultBounds}
	r.set = r.newSet(cell.Layouts(redis.Prefix(t), cells, redis.IsCluster()))
	r.Service = NewService(r.set.Runners(), 1<<10, func(string) Bounds { return r.bounds })
	return r
}

func (g *rig) newSet(layouts []cell.Layout) *cell.Set {
	g.t.Helper()
	cells := make([]*cell.Cell, len(layouts))
	for i, layout := range layouts {
		var err error
		cfg := cell.Config{Layout: layout, Index: i, Cells: len(layouts), HeartbeatLimit: time.Hour, CallTimeout: patience}
		if cells[i], err = cell.New(cfg, g.client, zaptest.NewLogger(g.t), nil); err != nil {
			g.t.Fatal(err)
		}
	}
	set := cell.NewSet(cells...)
	g.runs(set)
	return set
}

// runs starts a part until the end of the test.
func (g *rig) runs(part interface {
	Start(context.Context) error
	Stop(context.Context) error
},
) {
	g.t.Helper()
	if err := part.Start(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := part.Stop(ctx); err != nil {
			g.t.Error(err)
		}
	})
}

// node registers one that runs "echo".
func (g *rig) node(id string, slots int) {
	g.t.Helper()
	n := freeslot.Node{ID: id, MaxConcurrency: slots, Services: []freeslot.Service{{Name: "echo"}}}
	if _, err := g.set.OfNode(id).Register(g.t.Context(), n, cell.NewEpoch()); err != nil {
		g.t.Fatal(err)
	}
}

// replica is a runner, not started, over a dispatcher of its own that knows the nodes of now.
func (g *rig) replica(name string) *Runner {
	g.t.Helper()
	log := zaptest.NewLogger(g.t)
	feeds := make([]cache.Feed, g.set.Len())
	for i, c := range g.set.All() {
		feeds[i] = cache.Feed{Source: c}
	}
	nodes := cache.New(cache.Config{}, feeds, log, nil)
	g.runs(nodes)
	d, err := dispatch.New(dispatch.Config{Replica: name}, g.set, nodes, log, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.runs(d)
	return g.runner(name, d)
}

func (g *rig) runner(name string, d Dispatcher) *Runner {
	return NewRunner(Config{Replica: name, MaxPayloadBytes: 1 << 10}, g.set.Runners(), g.set, d, zaptest.NewLogger(g.t), nil)
}

func change(cron string, f ...func(*Change)) *Change {
	c := &Change{Definition: Definition{Cron: cron, Job: freeslot.Job{Service: "echo", Payload: json.RawMessage(`1`)}}}
	for _, f := range f {
		f(c)
	}
	return c
}

func (g *rig) put(name string, c *Change) Schedule {
	g.t.Helper()
	s, _, err := g.Put(g.t.Context(), tenant, name, c)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

func (g *rig) get(name string) Schedule {
	g.t.Helper()
	s, err := g.Get(g.t.Context(), tenant, name, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

func (g *rig) state(name string) (*state, int64) {
	g.t.Helper()
	f, err := g.find(g.t.Context(), tenant, name)
	if err != nil || f.broken != nil || f.state == nil {
		g.t.Fatal(f, err)
	}
	return f.state, f.nowMS
}

// edit changes the state, as time would do.
func (g *rig) edit(name string, f func(st *state, nowMS int64)) {
	g.t.Helper()
	if _, err := g.change(g.t.Context(), tenant, name, func(found *found) (*state, string, error) {
		next := found.state.step()
		f(next, found.nowMS)
		return next, "", nil
	}); err != nil {
		g.t.Fatal(err)
	}
}

// overdue has the next run so long ago.
func (g *rig) overdue(name string, ago time.Duration) (nextMS int64) {
	g.t.Helper()
	g.edit(name, func(st *state, nowMS int64) {
		st.NextMS = nowMS - ago.Milliseconds()
		nextMS = st.NextMS
	})
	return nextMS
}

func (g *rig) handle(r *Runner, name string) {
	g.t.Helper()
	if _, err := r.handle(idOf(tenant, name)); err != nil {
		g.t.Error(err)
	}
}

// jobs are the ids of all jobs that there are, by the times of their runs.
func (g *rig) jobs() (ids []string) {
	g.t.Helper()
	for cursor, more := "", true; more; {
		page, err := g.set.Jobs(g.t.Context(), cell.JobFilter{}, cursor, 100)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, j := range page.Jobs {
			if !slices.Contains(ids, j.ID) {
				ids = append(ids, j.ID)
			}
		}
		cursor, more = page.Cursor, page.Cursor != ""
	}
	slices.SortFunc(ids, func(a, b string) int { return int(runTime(a) - runTime(b)) })
	return ids
}

func runTime(id string) int64 { return int64(ulid.MustParse(id[len(id)-26:]).Time()) }

// fake is a dispatcher that does as it is told.
type fake struct {
	home   error
	submit error
	job    error
	made   []dispatch.Request
}

func (f *fake) Home(string, *freeslot.Job, int) (int, error) { return 0, f.home }

func (f *fake) Submit(_ context.Context, reqs []dispatch.Request, _ dispatch.Sink, accepted func(int, dispatch.Accepted, error)) {
	f.made = append(f.made, reqs...)
	accepted(0, dispatch.Accepted{}, f.submit)
}

func (f *fake) Job(context.Context, string, string) (freeslot.JobStatus, error) {
	return freeslot.JobStatus{}, f.job
}

func coded(code freeslot.Code) error { return &freeslot.Error{Code: code, Message: "as told"} }
