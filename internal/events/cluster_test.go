package events

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// clusterCells returns a cell for each master of a fresh cluster.
func clusterCells(t *testing.T, redis *redistest.ReplicaCluster, c rueidis.Client) []TrackedCell {
	t.Helper()
	var cells []TrackedCell
	for _, master := range redis.Processes()[:3] {
		for i := 0; ; i++ {
			tag := fmt.Sprintf("c%d-%d", len(cells), i)
			slot, err := do(t, c, "CLUSTER", "KEYSLOT", "{"+tag+"}").AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			if redis.Owner(uint16(slot)) == master {
				cells = append(cells, TrackedCell{Index: len(cells), Tag: tag, Slot: uint16(slot)})
				break
			}
		}
	}
	return cells
}

// clusterRig is a tracker of three cells, a follower of each, and writers.
type clusterRig struct {
	redis    *redistest.ReplicaCluster
	admin    rueidis.Client
	cells    []TrackedCell
	tracker  *Tracker
	watch    []*Watch
	follower []*follower
}

func newClusterRig(t *testing.T) *clusterRig {
	t.Helper()
	r := &clusterRig{redis: redistest.NewReplicaCluster(t)}
	r.admin = r.redis.Client(t)
	r.cells = clusterCells(t, r.redis, r.admin)
	r.tracker = NewTracker(TrackerConfig{
		Prefix: trackedPrefix, Cells: r.cells, Open: openTracker("tracker"), Masters: ClusterMasters(r.redis.Client(t)),
	}, zaptest.NewLogger(t), nil)
	start(t, r.tracker)
	for _, c := range r.cells {
		w := r.tracker.Watch(c.Index)
		eventually(t, "the connection", w.Connected)
		r.watch = append(r.watch, w)
		r.follower = append(r.follower, follow(t, w, r.admin, c.Tag))
	}
	return r
}

// during does harm while all cells are written.
func (r *clusterRig) during(t *testing.T, what string, harm func()) {
	t.Helper()
	var stops []func() int
	for _, f := range r.follower {
		stops = append(stops, f.write(t))
	}
	harm()
	for _, stop := range stops {
		stop()
	}
	r.settles(t, what)
}

// settles shows that every copy becomes the truth, and that a write by hand is
// heard at the right server.
func (r *clusterRig) settles(t *testing.T, after string) {
	t.Helper()
	for i, f := range r.follower {
		f.converges(t, after)
		eventually(t, fmt.Sprintf("the connection of cell %d after %s", i, after), r.watch[i].Connected)
		// The writer's client, too, has to find the master first.
		eventually(t, "a write by hand after "+after, func() bool {
			return r.admin.Do(t.Context(), r.admin.B().Hset().Key(f.keys[0]).FieldValue().FieldValue("v", after).Build()).Error() == nil
		})
		f.converges(t, "a write by hand after "+after)
	}
}

// connections are the servers that a cell's watch depends on.
func (r *clusterRig) connections(cell int) map[string]bool {
	out := make(map[string]bool)
	for _, c := range *r.watch[cell].connections.Load() {
		out[c.server] = true
	}
	return out
}

func (r *clusterRig) awaitConnection(t *testing.T, cell int, addr string) {
	t.Helper()
	eventually(t, fmt.Sprintf("cell %d tracked at %s", cell, addr), func() bool {
		connections := r.connections(cell)
		return len(connections) == 1 && connections[addr] && r.watch[cell].Connected()
	})
}

// After any change of the masters every copy becomes the truth.
func TestTrackerCluster(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t)
	r.during(t, "the start", func() {})

	r.during(t, "a failover", func() {
		r.awaitConnection(t, 0, r.redis.Failover(r.cells[0].Slot).Addr())
	})

	r.during(t, "a slot migration", func() {
		to := r.redis.Owner(r.cells[2].Slot)
		r.redis.MigrateSlot(r.cells[1].Slot, to)
		r.awaitConnection(t, 1, to.Addr())
	})

	r.during(t, "a slot moved to a joined master", func() {
		joined := r.redis.Join()
		r.redis.MigrateSlot(r.cells[1].Slot, joined)
		r.awaitConnection(t, 1, joined.Addr())
	})

	r.during(t, "a master's death", func() {
		dead := r.redis.Owner(r.cells[2].Slot)
		if err := dead.Kill(); err != nil {
			t.Fatal(err)
		}
		r.awaitConnection(t, 2, r.redis.Owner(r.cells[2].Slot).Addr())
	})

	// What happens on one master concerns its cells alone.
	owner := r.redis.Owner(r.cells[0].Slot)
	if r.redis.Owner(r.cells[1].Slot) == owner || r.redis.Owner(r.cells[2].Slot) == owner {
		t.Fatal("the cell is not alone on its master")
	}
	node := redistest.At("node", false, owner.Addr()).Client(t)
	before := testutil.ToFloat64(r.tracker.metrics.resets)
	do(t, node, "FLUSHALL")
	r.follower[0].converges(t, "a flush")
	if told := testutil.ToFloat64(r.tracker.metrics.resets) - before; told != 1 {
		t.Errorf("%v cells were told of one master's flush", told)
	}
	r.settles(t, "a flush")
}

// A sharded subscription stands again after everything that ends one, each time
// with a reset, and at the slot's master.
func TestShardedSubscriber(t *testing.T) {
	t.Parallel()
	redis := redistest.NewReplicaCluster(t)
	admin := redis.Client(t)
	cells := clusterCells(t, redis, admin)
	shared := redis.Client(t)
	var subs []*Subscriber
	var channels []string
	for _, c := range cells {
		channels = append(channels, "scheduler:events:node_update:{"+c.Tag+"}")
		sub := NewSubscriber(shared, channels[c.Index], true, zaptest.NewLogger(t))
		start(t, sub)
		receive(t, sub.Resets())
		subs = append(subs, sub)
	}
	count := 0
	hears := func(after string) {
		t.Helper()
		for i, sub := range subs {
			count++
			message := strconv.Itoa(count)
			// By the master itself: a replica would take it too, and pass it on. A
			// reset can be one too many, so the subscription may have to come yet.
			master := redistest.At("master", false, redis.Owner(cells[i].Slot).Addr()).Client(t)
			eventually(t, fmt.Sprintf("a subscriber of channel %d at its master after %s", i, after), func() bool {
				n, err := do(t, master, "SPUBLISH", channels[i], message).AsInt64()
				return err == nil && n == 1
			})
			if got := receive(t, sub.Messages()); got != message {
				t.Fatalf("after %s channel %d: got %q, want %q", after, i, got, message)
			}
		}
	}
	hears("the start")

	redis.Failover(cells[0].Slot)
	receive(t, subs[0].Resets())
	hears("a failover")

	redis.MigrateSlot(cells[1].Slot, redis.Join())
	receive(t, subs[1].Resets())
	hears("a migration")

	if err := redis.Owner(cells[2].Slot).Kill(); err != nil {
		t.Fatal(err)
	}
	redis.Owner(cells[2].Slot)
	receive(t, subs[2].Resets())
	hears("a master's death")

	node := redistest.At("node", false, redis.Owner(cells[0].Slot).Addr()).Client(t)
	for range 10 {
		select {
		case <-subs[0].Resets():
		default:
		}
		eventually(t, "a connection to cut", func() bool {
			n, err := do(t, node, "CLIENT", "KILL", "TYPE", "pubsub").AsInt64()
			return err == nil && n > 0
		})
		receive(t, subs[0].Resets())
	}
	hears("lost connections")
}
