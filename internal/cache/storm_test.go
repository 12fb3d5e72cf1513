package cache

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// storm is several cells of one system on servers of their own, agents that write
// to them, operators who meddle, and a cache that has to follow it all.
type storm struct {
	t      testing.TB
	target *redistest.Target
	server *redistest.Server // nil on a cluster
	admin  rueidis.Client
	set    *cell.Set // the writers'
	cache  *Cache
	reads  []*source // the cache's
	epochs map[string]cell.Epoch
	jobs   map[string][]string
	dumped bool // a snapshot of the server's data exists
}

const stormNodes = 8

func newStorm(t *testing.T, target *redistest.Target, server *redistest.Server, cells int, cfg Config) *storm {
	t.Helper()
	s := &storm{
		t: t, target: target, server: server, epochs: make(map[string]cell.Epoch), jobs: make(map[string][]string),
		admin: target.Client(t, func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 }),
	}
	log := zap.NewNop()
	layouts := cell.Layouts(target.Prefix(t), cells, target.IsCluster())
	commands := target.Client(t, func(o *rueidis.ClientOption) { o.ConnWriteTimeout = time.Second })
	subscriber := target.Client(t, func(o *rueidis.ClientOption) {
		o.ConnWriteTimeout = time.Second
		o.RetryDelay = func(int, rueidis.Completed, error) time.Duration { return 2 * time.Millisecond }
	})
	tracker := s.track(layouts, log)
	var writers []*cell.Cell
	var feeds []Feed
	for i, l := range layouts {
		writers = append(writers, newCell(t, s.admin, cell.Config{Layout: l, Index: i}))
		read := &source{Cell: newCell(t, commands, cell.Config{Layout: l, Index: i, CallTimeout: 250 * time.Millisecond})}
		s.reads = append(s.reads, read)
		feeds = append(feeds, Feed{
			Source: read,
			Events: events.NewSubscriber(subscriber, l.NodeEvents(), l.Sharded, log),
			Watch:  tracker.Watch(i),
		})
	}
	s.set = cell.NewSet(writers...)
	s.cache = New(cfg, feeds, log, nil)
	ctx := deadline(t)
	if err := s.cache.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cache.Stop(deadline(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *storm) track(layouts []cell.Layout, log *zap.Logger) *events.Tracker {
	s.t.Helper()
	cfg := events.TrackerConfig{Prefix: layouts[0].Prefix + ":nodes:"}
	for i, l := range layouts {
		slot, _ := l.Slot()
		cfg.Cells = append(cfg.Cells, events.TrackedCell{Index: i, Tag: l.Tag, Slot: uint16(slot), Server: s.target.Addrs()[0]})
	}
	cfg.Open = func(addr string, on func([]rueidis.RedisMessage)) (rueidis.Client, error) {
		return redisclient.Tracker(redisclient.Config{URL: "redis://" + addr}, addr, cfg.Prefix, on)
	}
	if s.target.IsCluster() {
		cfg.Masters = events.ClusterMasters(s.admin)
	}
	tracker := events.NewTracker(cfg, log, nil)
	if err := tracker.Start(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := tracker.Stop(deadline(s.t)); err != nil {
			s.t.Error(err)
		}
	})
	return tracker
}

func (s *storm) do(args ...string) {
	s.t.Helper()
	cmd := s.admin.B().Arbitrary(args[0])
	if len(args) > 1 && args[0] != "CLIENT" {
		cmd = cmd.Keys(args[1]).Args(args[2:]...)
	} else {
		cmd = cmd.Args(args[1:]...)
	}
	if err := s.admin.Do(deadline(s.t), cmd.Build()).Error(); err != nil && !rueidis.IsRedisNil(err) {
		s.t.Fatalf("%q: %v; want no error or rueidis.IsRedisNil(err)", args, err)
	}
}

// heartbeat is what an agent does: it registers again when it is not known. n < 5 is a sign
// of life alone.
func (s *storm) heartbeat(id string, n int) {
	s.t.Helper()
	c := s.set.OfNode(id)
	hb := cell.Heartbeat{Node: id, Epoch: s.epochs[id]}
	if n >= 5 {
		hb.Resources = fmt.Appendf(nil, `{"n":%d}`, n)
	}
	_, err := c.Heartbeat(deadline(s.t), hb)
	if errors.Is(err, cell.ErrUnknownNode) || errors.Is(err, cell.ErrSuperseded) {
		s.register(testNode(id, 2))
		_, err = c.Heartbeat(deadline(s.t), hb)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *storm) register(n freeslot.Node) {
	s.t.Helper()
	if s.epochs[n.ID] == "" {
		s.epochs[n.ID] = cell.NewEpoch()
	}
	if _, err := s.set.OfNode(n.ID).Register(deadline(s.t), n, s.epochs[n.ID]); err != nil {
		s.t.Fatal(err)
	}
}

func (s *storm) submit(id string) {
	s.t.Helper()
	if s.epochs[id] == "" {
		return // no later event would bring the slots in use
	}
	c := s.set.OfNode(id)
	sub := cell.Submission{JobID: c.NewJobID(), Tenant: "acme", Job: &freeslot.Job{Service: "echo"}, Candidates: []string{id}}
	if p, err := c.Submit(deadline(s.t), sub); err != nil {
		s.t.Fatal(err)
	} else if p.Assigned {
		s.jobs[id] = append(s.jobs[id], sub.JobID)
	}
}

func (s *storm) complete(id string) {
	s.t.Helper()
	if len(s.jobs[id]) == 0 || s.epochs[id] == "" {
		return
	}
	_, err := s.set.OfNode(id).Complete(deadline(s.t), cell.Completion{
		Node: id, Epoch: s.epochs[id], Attempt: cell.Attempt{Job: s.jobs[id][0], N: 1}, State: freeslot.StateSucceeded,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.jobs[id] = s.jobs[id][1:]
}

// truth is what Redis has: slow and obvious.
func (s *storm) truth() []cell.NodeState {
	s.t.Helper()
	out := []cell.NodeState{}
	for _, c := range s.set.All() {
		page, err := c.Changes(deadline(s.t), 0, 1000)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, n := range page.Nodes {
			if !n.Gone && n.Broken == nil && n.Node.Validate("node") == nil {
				out = append(out, n)
			}
		}
	}
	slices.SortFunc(out, func(a, b cell.NodeState) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	return out
}

func (s *storm) diff() string {
	s.t.Helper()
	plain := func(states []cell.NodeState) []string {
		var out []string
		for i := range states {
			n := &states[i]
			profile, err := json.Marshal(n.Node)
			if err != nil {
				s.t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s epoch=%s used=%d status=%s resources=%s registered=%d heartbeat=%d",
				profile, n.Epoch, n.Used, n.Status, n.Resources, n.RegisteredAtMS, n.LastHeartbeatMS))
		}
		return out
	}
	return gocmp.Diff(plain(s.truth()), plain(s.cache.States()))
}

// converges waits until the cache has what Redis has. Slots in use between full and empty are not
// announced, so every agent sends them once more, and nothing else.
func (s *storm) converges() {
	s.t.Helper()
	for i := range stormNodes {
		if id := nodeName(i); s.epochs[id] != "" {
			s.heartbeat(id, -1)
		}
	}
	diff := ""
	waittest.Until(s.t, "no difference (-redis +cache)", func() bool { diff = s.diff(); return diff == "" }, func() any { return diff })
}

// failover brings the server back as it was at the last snapshot: what was written
// since is lost, and its revisions are given out a second time.
func (s *storm) failover() {
	s.t.Helper()
	s.server.Kill()
	s.server.Restart()
	// The agents' jobs of since then are lost too.
	clear(s.jobs)
	s.await()
}

// await waits until the writers' connections are back.
func (s *storm) await() {
	s.t.Helper()
	waittest.Succeeds(s.t, "a connection", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return s.admin.Do(ctx, s.admin.B().Arbitrary("PING").Build()).Error()
	})
}

func (s *storm) step(rt *rapid.T) {
	id := nodeName(rapid.IntRange(0, stormNodes-1).Draw(rt, "node"))
	layout := s.set.OfNode(id).Layout()
	steps := []string{
		"register", "heartbeat", "heartbeat", "submit", "submit", "complete", "complete", "restart", "deregister",
		"hset", "del", "broken", "kill pubsub", "kill normal",
	}
	if s.server != nil {
		steps = append(steps, "flush", "snapshot", "failover", "pause")
	}
	switch what := rapid.SampledFrom(steps).Draw(rt, "step"); what {
	case "register":
		n := testNode(id, rapid.IntRange(1, 3).Draw(rt, "slots"))
		n.Pools = rapid.SliceOfN(rapid.SampledFrom([]string{"p", "q"}), 0, 2).Draw(rt, "pools")
		if zone := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "zone"); zone != "" {
			n.Labels = map[string]string{"zone": zone}
		}
		if version := rapid.SampledFrom([]string{"", "1.0", "2.1"}).Draw(rt, "version"); version != "" {
			n.Services = append(slices.Clone(n.Services), freeslot.Service{Name: "tts", Version: version})
		}
		n.Languages.ASR = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"de", "en", "zh-Hant"}), 0, 3, rapid.ID).Draw(rt, "languages")
		s.register(n)
	case "heartbeat":
		if s.epochs[id] != "" {
			s.heartbeat(id, rapid.IntRange(0, 9).Draw(rt, "figure"))
		}
	case "submit":
		s.submit(id)
	case "complete":
		s.complete(id)
	case "restart":
		s.epochs[id], s.jobs[id] = cell.NewEpoch(), nil
		s.register(testNode(id, 2))
	case "deregister":
		if s.epochs[id] != "" {
			_, err := s.set.OfNode(id).Deregister(deadline(s.t), id, s.epochs[id])
			if errors.Is(err, cell.ErrSuperseded) {
				break // the former epoch, which a failover brought back: an agent must still send its slots in use
			}
			if err != nil {
				s.t.Fatal(err)
			}
			delete(s.epochs, id)
			delete(s.jobs, id)
		}
	case "hset": // an operator, in the middle of everything
		if s.epochs[id] != "" {
			s.heartbeat(id, 0)
			s.do("HSET", layout.Node(id), "max_concurrency", fmt.Sprint(rapid.IntRange(1, 9).Draw(rt, "edited")))
		}
	case "broken":
		if s.epochs[id] != "" {
			s.heartbeat(id, 0)
			s.do("HSET", layout.Node(id), "installed_services", "{")
			s.register(testNode(id, 1)) // and mended by its agent
		}
	case "del":
		s.do("DEL", layout.Node(id))
	case "kill pubsub", "kill normal":
		s.do("CLIENT", "KILL", "TYPE", what[len("kill "):], "SKIPME", "yes")
	case "flush":
		s.do("FLUSHALL")
		clear(s.jobs)
	case "snapshot":
		s.do("SAVE")
		s.dumped = true
	case "failover":
		if s.dumped {
			s.failover()
		}
	case "pause":
		s.server.Pause()
		s.server.Resume()
	}
}

// TestStorm: after faults of the fleet, of Redis and of every connection, the cache ends with what
// Redis has, compared with a twin that reads everything.
func TestStorm(t *testing.T) {
	t.Parallel()
	for _, cells := range []int{1, 3} {
		t.Run(fmt.Sprintf("cells=%d", cells), func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			cfg := Config{RefreshInterval: 100 * time.Millisecond, RefreshSize: 3}
			s := newStorm(t, server.Target, server, cells, cfg)
			rapid.Check(t, func(rt *rapid.T) {
				for range rapid.IntRange(1, 25).Draw(rt, "steps") {
					s.step(rt)
				}
				s.converges()
			})
		})
	}
}

// The same on a cluster, without the faults of a whole server. The cluster is not the shared one,
// because the storm breaks connections of all its clients.
func TestStormOnCluster(t *testing.T) {
	t.Parallel()
	s := newStorm(t, redistest.NewCluster(t).Target, nil, 4, Config{RefreshInterval: 100 * time.Millisecond, RefreshSize: 3})
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			s.step(rt)
		}
		s.converges()
	})
}

// A replica of a master takes its place, and a cell's slot moves to another master, with its keys:
// events, invalidations and comparisons go on from there, an operator's edit included.
func TestClusterMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.NewReplicaCluster(t)
	s := newStorm(t, cluster.Target, nil, 4, Config{RefreshInterval: 100 * time.Millisecond, RefreshSize: 3})
	slotOf := func(index int) uint16 {
		slot, _ := s.set.At(index).Layout().Slot()
		return uint16(slot)
	}
	change := func(slots int, moved int) {
		t.Helper()
		edited := false
		for i := range stormNodes {
			n := testNode(nodeName(i), slots)
			if s.epochs[n.ID] == "" {
				s.epochs[n.ID] = cell.NewEpoch()
			}
			into := s.set.OfNode(n.ID)
			eventually(t, "a registration with the new master", func() bool {
				_, err := into.Register(deadline(t), n, s.epochs[n.ID])
				return err == nil
			})
			if into.Index() == moved {
				s.do("HSET", into.Layout().Node(n.ID), "max_concurrency", "99")
				edited = true
			}
		}
		if !edited && moved >= 0 {
			t.Fatalf("no node lives in cell %d", moved)
		}
		s.converges()
	}
	change(2, -1)
	moved := s.set.OfNode(nodeName(0)).Index()
	cluster.Failover(slotOf(moved))
	change(3, moved)
	from := cluster.Owner(slotOf(moved))
	for i := range s.set.All() {
		if to := cluster.Owner(slotOf(i)); to != from {
			cluster.MigrateSlot(slotOf(moved), to)
			break
		}
	}
	if cluster.Owner(slotOf(moved)) == from {
		t.Fatal("the slot has not moved")
	}
	change(4, moved)
	eventually(t, "a healthy cache", func() bool { return !s.cache.Stale() && s.cache.Skip() == 0 })
}

// Redis hangs for ten seconds, while the fleet and its operators wait to go on.
func TestLongPause(t *testing.T) {
	t.Parallel()
	const pause = 10 * time.Second
	server := redistest.New(t)
	s := newStorm(t, server.Target, server, 2, Config{RefreshInterval: 100 * time.Millisecond})
	for i := range stormNodes {
		s.register(testNode(nodeName(i), 2))
	}
	s.converges()
	server.Pause()
	var writers sync.WaitGroup
	for i := range stormNodes {
		writers.Go(func() {
			id := nodeName(i)
			ctx, cancel := context.WithTimeout(context.Background(), 2*pause)
			defer cancel()
			// Lost with its connection, or applied after the pause: the caller cannot know which.
			_, _ = s.set.OfNode(id).Heartbeat(ctx, cell.Heartbeat{Node: id, Epoch: s.epochs[id], Status: freeslot.StatusDraining})
		})
	}
	// The pause is the scenario itself, not a wait for something.
	<-time.After(pause)
	if h := s.cache.Health(); !h.Stale || h.Nodes != stormNodes || h.Age < pause/2 {
		t.Errorf("while Redis hangs: %+v", h)
	}
	server.Resume()
	writers.Wait()
	s.await()
	s.do("HSET", s.set.OfNode(nodeName(0)).Layout().Node(nodeName(0)), "max_concurrency", "9")
	s.converges()
	eventually(t, "a healthy cache", func() bool { return !s.cache.Stale() && s.cache.Skip() == 0 })
}

// A flood: more events than the queue holds are published before the cache can
// apply them. It drops some, sees the gap and ends where Redis is.
func TestFlood(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	s := newStorm(t, server.Target, server, 1, Config{RefreshInterval: never})
	for i := range stormNodes {
		s.register(testNode(nodeName(i), 2))
	}
	s.converges()
	script := `local revision = 0
for i = 1, 1000 do
  revision = redis.call('HINCRBY', KEYS[1], 'revision', 1)
  redis.call('ZADD', KEYS[2], revision, ARGV[1])
  redis.call('PUBLISH', ARGV[2], string.format('1 1 h %.0f %s %s online 2 0 {}', revision, ARGV[1], ARGV[3]))
end
return revision`
	layout := s.set.At(0).Layout()
	id := nodeName(0)
	// The loop is busy meanwhile.
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.reads[0].intercept(func(_ context.Context, _ cell.Revision, _ *cell.Changes, err error) error {
		once.Do(func() { close(held); <-release })
		return err
	})
	var syncing sync.WaitGroup
	syncing.Go(func() { _ = s.cache.Sync(deadline(t)) })
	<-held
	// In small parts: while a script runs, Redis answers no other connection, and one that gets no
	// answer for a second ends with what it had not received.
	eventually(t, "a full queue", func() bool {
		err := s.admin.Do(deadline(t), s.admin.B().Eval().Script(script).Numkeys(2).Key(layout.Version(), layout.Revisions()).
			Arg(id, layout.NodeEvents(), s.epochs[id]).Build()).Error()
		if err != nil {
			t.Fatal(err)
		}
		return s.cache.followers[0].events.Dropped() > 0
	})
	close(release)
	syncing.Wait()
	s.converges()
}

// A failover that loses the last writes gives their revisions to others; the cache,
// which has seen the lost ones, must forget them.
func TestLostWrites(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	s := newStorm(t, server.Target, server, 1, Config{RefreshInterval: never})
	s.register(testNode("n000", 2))
	s.register(testNode("n001", 2))
	s.converges()
	s.do("SAVE")
	if _, err := os.Stat(filepath.Join(server.Process().Dir(), "dump.rdb")); err != nil {
		t.Fatal(err)
	}
	lost := testNode("n000", 7)
	s.register(lost)
	s.register(testNode("n002", 2))
	s.converges()
	if got, _ := s.cache.State("n000"); got.Node.MaxConcurrency != 7 {
		t.Fatalf("%+v; want got.Node.MaxConcurrency == 7", got)
	}
	delete(s.epochs, "n002") // it never comes back
	s.failover()
	s.register(testNode("n001", 3)) // revisions that were given before
	s.register(testNode("n003", 1))
	s.register(testNode("n003", 2))
	s.converges()
	if got, _ := s.cache.State("n000"); got.Node.MaxConcurrency != 2 || s.cache.Size() != 3 {
		t.Errorf("%d nodes, n000 has %d slots", s.cache.Size(), got.Node.MaxConcurrency)
	}
}
