package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/cell/profile"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

func deadline(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	waittest.Until(t, what, cond)
}

// rig is one cell, a cache that follows it, and a way around both.
type rig struct {
	t      *testing.T
	redis  *redistest.Target
	client rueidis.Client
	cell   *cell.Cell
	source *source
	*Cache
	*follower // of the one cell
	registry  *prometheus.Registry
	epochs    map[string]cell.Epoch
}

// source counts what the cache reads, and lets a test come between.
type source struct {
	*cell.Cell
	calls atomic.Int64
	reads atomic.Int64 // of single nodes
	nodes atomic.Int64 // that were read, by both
	hears atomic.Int64 // calls of Heard
	// hearing, if set, is called before each of them, and may make it fail.
	hearing atomic.Pointer[func(sinceMS int64) error]
	// taking, if set, is called in each call, behind Redis' answer.
	taking atomic.Pointer[func()]
	// history, if set, is the history that the server reports.
	history atomic.Pointer[string]
	// after, if set, sees what every Changes call brought before the cache does.
	after atomic.Pointer[func(ctx context.Context, since cell.Revision, ch *cell.Changes, err error) error]
}

func (s *source) Changes(ctx context.Context, since cell.Revision, limit int) (cell.Changes, error) {
	ch, err := s.Cell.Changes(ctx, since, limit)
	s.calls.Add(1)
	s.nodes.Add(int64(len(ch.Nodes)))
	s.takes()
	if after := s.after.Load(); after != nil {
		err = (*after)(ctx, since, &ch, err)
	}
	return ch, err
}

func (s *source) Nodes(ctx context.Context, ids []string) (cell.Changes, error) {
	s.reads.Add(1)
	s.nodes.Add(int64(len(ids)))
	defer s.takes()
	return s.Cell.Nodes(ctx, ids)
}

func (s *source) History(ctx context.Context) (string, error) {
	if h := s.history.Load(); h != nil {
		return *h, nil
	}
	defer s.takes()
	return s.Cell.History(ctx)
}

// during has each call take as long as f.
func (s *source) during(f func()) { s.taking.Store(&f) }

func (s *source) takes() {
	if f := s.taking.Load(); f != nil {
		(*f)()
	}
}

func (s *source) intercept(f func(ctx context.Context, since cell.Revision, ch *cell.Changes, err error) error) {
	if f == nil {
		s.after.Store(nil)
		return
	}
	s.after.Store(&f)
}

// never is an interval in which no comparison happens by itself.
const never = time.Hour

// newRig makes a cache that is not started.
func newRig(t *testing.T, redis *redistest.Target, cfg Config, options ...option) *rig {
	t.Helper()
	var opts rigOptions
	for _, o := range options {
		o(&opts)
	}
	layout := cell.Layout{Prefix: redis.Prefix(t)}
	var subscriber rueidis.Client
	if redis.IsCluster() {
		layout.Tag = "c0"
		subscriber = redis.Client(t)
	} else if opts.unhurried && !opts.noEvents {
		subscriber = redis.Client(t, unhurriedly)
	} else if !opts.noEvents {
		var err error
		if subscriber, err = redisclient.Subscriber(redisclient.Config{URL: redis.URL()}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(subscriber.Close)
	}
	r := &rig{t: t, redis: redis, client: redis.Client(t), registry: prometheus.NewRegistry(), epochs: make(map[string]cell.Epoch)}
	r.cell = newCell(t, r.client, cell.Config{Layout: layout})
	calls, silence := 250*time.Millisecond, func(o *rueidis.ClientOption) { o.ConnWriteTimeout = time.Second }
	if opts.unhurried {
		calls, silence = waittest.Limit, unhurriedly
	}
	r.source = &source{Cell: newCell(t, redis.Client(t, silence), cell.Config{Layout: layout, CallTimeout: calls})}
	r.Cache = New(cfg, []Feed{r.feed(subscriber, opts)}, cmp.Or(opts.log, zaptest.NewLogger(t)), r.registry)
	r.follower = r.followers[0]
	return r
}

func newCell(t *testing.T, client rueidis.Client, cfg cell.Config) *cell.Cell {
	t.Helper()
	c, err := cell.New(cfg, client, zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(deadline(t)); err != nil {
			t.Error(err)
		}
	})
	return c
}

// rigOptions is what a rig leaves out or adds.
type rigOptions struct {
	noEvents bool
	watch    Watch
	log      *zap.Logger // instead of the test's

	unhurried bool
}

type option func(*rigOptions)

// unhurried is for tests in which no call may fail, however busy the machine is.
func unhurried(o *rigOptions) { o.unhurried = true }

func unhurriedly(o *rueidis.ClientOption) { o.ConnWriteTimeout = waittest.Limit }

func watched(w Watch) option { return func(o *rigOptions) { o.watch = w } }

func logged(core zapcore.Core) option { return func(o *rigOptions) { o.log = zap.New(core) } }

func withoutEvents(without bool) option { return func(o *rigOptions) { o.noEvents = without } }

func (r *rig) feed(subscriber rueidis.Client, opts rigOptions) Feed {
	feed := Feed{Source: r.source, Watch: opts.watch}
	if !opts.noEvents {
		feed.Events = events.NewSubscriber(subscriber, r.cell.Layout().NodeEvents(), false, zaptest.NewLogger(r.t))
	}
	return feed
}

// run starts the cache until the end of the test, and waits until it is subscribed
// and quiet: from then on it reads only if something makes it.
func (r *rig) run() *rig {
	r.t.Helper()
	r.t.Cleanup(func() {
		if err := r.Stop(deadline(r.t)); err != nil {
			r.t.Error(err)
		}
	})
	if err := r.Start(deadline(r.t)); err != nil {
		r.t.Fatal(err)
	}
	if r.events != nil {
		// An event of long ago, which is only counted: when it is, the subscription
		// stands, and its reset has been signalled.
		probe := "1 1 o 0 probe e offline 0 0 "
		eventually(r.t, "the subscription", func() bool {
			r.do("PUBLISH", r.cell.Layout().NodeEvents(), probe)
			return r.counter(r.metrics.events.WithLabelValues("node_offline")) > 0
		})
		eventually(r.t, "the reset", func() bool { return len(r.events.Resets()) == 0 })
	}
	r.sync() // behind the reset, as the loop does one after the other
	return r
}

// subscribers is how many there are of the cell's channel.
func (r *rig) subscribers() int64 {
	r.t.Helper()
	sum := int64(0)
	for _, addr := range r.redis.Addrs() {
		reply, err := redistest.Ask(deadline(r.t), addr, "PUBSUB", "NUMSUB", r.cell.Layout().NodeEvents()).ToArray()
		if err != nil || len(reply) != 2 {
			r.t.Fatalf("PUBSUB NUMSUB: %v, %v; want no error, len(reply) == 2", reply, err)
		}
		n, err := reply[1].AsInt64()
		if err != nil {
			r.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func (r *rig) sync() {
	r.t.Helper()
	if err := r.Sync(deadline(r.t)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) do(args ...string) rueidis.RedisResult {
	r.t.Helper()
	// The key first, so that a cluster's client finds the server.
	cmd := r.client.B().Arbitrary(args[0])
	if len(args) > 1 {
		cmd = cmd.Keys(args[1]).Args(args[2:]...)
	}
	result := r.client.Do(deadline(r.t), cmd.Build())
	if err := result.Error(); err != nil && !rueidis.IsRedisNil(err) {
		r.t.Fatalf("%q: %v; want no error or rueidis.IsRedisNil(err)", args, err)
	}
	return result
}

func testNode(id string, slots int) freeslot.Node {
	return freeslot.Node{ID: id, MaxConcurrency: slots, Services: []freeslot.Service{{Name: "echo"}}}
}

func (r *rig) register(n freeslot.Node) {
	r.t.Helper()
	if r.epochs[n.ID] == "" {
		r.epochs[n.ID] = cell.NewEpoch()
	}
	if _, err := r.cell.Register(deadline(r.t), n, r.epochs[n.ID]); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) deregister(id string) {
	r.t.Helper()
	if _, err := r.cell.Deregister(deadline(r.t), id, r.epochs[id]); err != nil {
		r.t.Fatal(err)
	}
	delete(r.epochs, id)
}

func (r *rig) heartbeat(id, resources string) {
	r.t.Helper()
	hb := cell.Heartbeat{Node: id, Epoch: r.epochs[id], Resources: []byte(resources)}
	if _, err := r.cell.Heartbeat(deadline(r.t), hb); err != nil {
		r.t.Fatal(err)
	}
}

// submit puts a job on the node; "" if it is full.
func (r *rig) submit(id string) string {
	r.t.Helper()
	s := cell.Submission{JobID: cell.NewJobID(0), Tenant: "acme", Job: &freeslot.Job{Service: "echo"}, Candidates: []string{id}}
	p, err := r.cell.Submit(deadline(r.t), s)
	if err != nil {
		r.t.Fatal(err)
	}
	if !p.Assigned {
		return ""
	}
	return s.JobID
}

func (r *rig) complete(id, job string) {
	r.t.Helper()
	_, err := r.cell.Complete(deadline(r.t), cell.Completion{
		Node: id, Epoch: r.epochs[id], Attempt: cell.Attempt{Job: job, N: 1}, State: freeslot.StateSucceeded,
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// truth is what Redis has: slow and obvious.
func (r *rig) truth() []cell.NodeState {
	r.t.Helper()
	found := make(map[string]cell.NodeState)
	for since := cell.Revision(0); ; {
		page, err := r.cell.Changes(deadline(r.t), since, 1000)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, n := range page.Nodes {
			delete(found, n.Node.ID)
			if !n.Gone && n.Broken == nil {
				found[n.Node.ID] = n
			}
		}
		if !page.More {
			break
		}
		since = page.Next
	}
	out := make([]cell.NodeState, 0, len(found))
	for _, n := range found {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b cell.NodeState) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	return out
}

// agrees compares the cache with Redis.
func (r *rig) agrees() {
	r.t.Helper()
	if diff := r.diff(); diff != "" {
		r.t.Fatalf("-redis +cache\n%s", diff)
	}
}

// converges waits until the cache agrees with Redis.
func (r *rig) converges() {
	r.t.Helper()
	diff := ""
	waittest.Until(r.t, "no difference (-redis +cache)", func() bool { diff = r.diff(); return diff == "" }, func() any { return diff })
}

func (r *rig) diff() string {
	r.t.Helper()
	// Empty lists and absent ones are the same profile.
	same := gocmp.Transformer("emptied", func(n freeslot.Node) freeslot.Node {
		profile.Normalize(&n)
		if len(n.Pools) == 0 {
			n.Pools = nil
		}
		if len(n.Labels) == 0 {
			n.Labels = nil
		}
		if len(n.Features) == 0 {
			n.Features = nil
		}
		return n
	})
	once := gocmp.FilterPath(func(p gocmp.Path) bool {
		for _, step := range p[:len(p)-1] {
			if tr, ok := step.(gocmp.Transform); ok && tr.Name() == "emptied" {
				return false
			}
		}
		return true
	}, same)
	return gocmp.Diff(r.truth(), r.States(), once)
}

func (r *rig) counter(c prometheus.Collector) int { return int(testutil.ToFloat64(c)) }

// chosen is the nodes that a choice made at now can bring.
func (r *rig) chosen(now int64) []string {
	r.t.Helper()
	dst := make([]*selection.Node, 0, 8)
	q := selection.Query{Want: 8, Now: now, SilenceLimit: r.SilenceLimit()}
	out := make([]string, 0, 8)
	for _, n := range r.Settle("echo", &freeslot.Requirement{}).Choose(dst, &q, selection.NewSource(1)) {
		out = append(out, n.ID())
	}
	slices.Sort(out)
	return out
}

func nodeName(i int) string { return fmt.Sprintf("n%03d", i) }

func itoa(i int) string { return strconv.Itoa(i) }
