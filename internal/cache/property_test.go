package cache

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestConverges: after any history of the fleet with cut connections, the cache is what Redis has
// in the end, by events, gaps and resubscriptions alone. The slow, obvious twin reads everything.
func TestConverges(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t) // its own: connections are killed by their kind
	// One connection, which spares itself.
	admin := redis.Client(t, func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 })
	rapid.Check(t, func(rt *rapid.T) {
		r := newHistory(t, rt, redis.Target, admin)
		defer r.close()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			r.step(rt)
		}
		// Slots in use between full and empty are not announced: the last heartbeats bring them.
		for id := range r.epochs {
			r.heartbeat(id, rapid.SampledFrom([]string{"", "", `{"last":true}`}).Draw(rt, "last"))
		}
		r.converges()
		for id := range r.epochs {
			if n, ok := r.Node(id); ok {
				if _, pending := n.Load(); pending != 0 {
					rt.Fatalf("%s has %d pending", id, pending)
				}
			}
		}
	})
}

type history struct {
	*rig
	admin rueidis.Client
	jobs  map[string][]string // by node
	close func()
}

// newHistory is a rig that lives for one round of the check.
func newHistory(t *testing.T, rt *rapid.T, redis *redistest.Target, admin rueidis.Client) *history {
	layout := cell.Layout{Prefix: redis.Prefix(t)}
	commands, err := redisclient.Commands(redisclient.Config{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := redisclient.Subscriber(redisclient.Config{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	log := zap.NewNop()
	c, err := cell.New(cell.Config{Layout: layout}, admin, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	read, err := cell.New(cell.Config{Layout: layout}, commands, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{admin: admin, jobs: make(map[string][]string), rig: &rig{
		t: t, redis: redis, client: admin, cell: c, source: &source{Cell: read}, epochs: make(map[string]cell.Epoch),
	}}
	cfg := Config{RefreshInterval: never, RefreshSize: rapid.SampledFrom([]int{1, 2, 100}).Draw(rt, "page")}
	h.Cache = New(cfg, []Feed{h.feed(subscriber, rigOptions{})}, log, nil)
	h.follower = h.followers[0]
	h.hearing.every = time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	h.close = func() {
		for _, err := range []error{h.Stop(ctx), c.Stop(ctx)} {
			if err != nil {
				t.Error(err)
			}
		}
		cancel()
		commands.Close()
		subscriber.Close()
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(rt, "quiet") {
		h.do("HSET", layout.Version(), "quiet_until", "9999999999999")
	}
	if err := h.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *history) step(rt *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "node")
	known := h.epochs[id] != ""
	switch what := rapid.SampledFrom([]string{
		"register", "register", "restart", "heartbeat", "heartbeat", "heartbeat", "drain", "submit", "submit", "complete", "deregister", "kill", "sync",
	}).Draw(rt, "step"); {
	case what == "kill":
		// With and without time for the cache to notice before the next step.
		kind := rapid.SampledFrom([]string{"pubsub", "pubsub", "normal"}).Draw(rt, "kind")
		if err := h.admin.Do(deadline(h.t), h.admin.B().Arbitrary("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Build()).Error(); err != nil {
			h.t.Fatal(err)
		}
	case what == "sync":
		h.sync()
	case what == "register" || !known:
		n := testNode(id, rapid.IntRange(1, 3).Draw(rt, "slots"))
		n.Pools = rapid.SliceOfN(rapid.SampledFrom([]string{"p", "q"}), 0, 2).Draw(rt, "pools")
		h.register(n)
	case what == "restart":
		h.epochs[id] = cell.NewEpoch()
		h.jobs[id] = nil
		h.register(testNode(id, 2))
	case what == "heartbeat":
		resources := "" // a sign of life alone
		if figure := rapid.IntRange(0, 9).Draw(rt, "figure"); figure > 4 {
			resources = fmt.Sprintf(`{"n":%d}`, figure)
		}
		h.heartbeat(id, resources)
	case what == "drain":
		hb := cell.Heartbeat{Node: id, Epoch: h.epochs[id], Status: freeslot.StatusDraining}
		if _, err := h.cell.Heartbeat(deadline(h.t), hb); err != nil {
			h.t.Fatal(err)
		}
	case what == "submit":
		if job := h.submit(id); job != "" {
			h.jobs[id] = append(h.jobs[id], job)
		}
	case what == "complete" && len(h.jobs[id]) > 0:
		h.complete(id, h.jobs[id][0])
		h.jobs[id] = h.jobs[id][1:]
	case what == "deregister":
		h.deregister(id)
		h.jobs[id] = nil
	}
}
