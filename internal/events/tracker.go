package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

const (
	// DefaultMastersInterval is the time between two requests of a Tracker for a cluster's masters.
	DefaultMastersInterval = time.Second
	// DefaultUnsupportedInterval is the time after which a server that cannot track is asked again.
	DefaultUnsupportedInterval = 30 * time.Second

	// mastersLimit bounds one request for the masters: a dead node takes that long.
	mastersLimit = 500 * time.Millisecond
	// calm is the least time between two requests for the masters, so that a server that drops
	// every connection does not cause requests without end.
	calm = 50 * time.Millisecond
)

// TrackedCell says where the keys of one cell are.
type TrackedCell struct {
	Index int
	// Tag is the hash tag in the cell's keys, without braces. It is empty for a single cell. No two
	// cells of a Tracker have the same tag.
	Tag string
	// Server is the argument of Open for the cell's server. It is not used on a cluster.
	Server string
	// Slot is the cell's hash slot. It is used only on a cluster.
	Slot uint16
}

// TrackerConfig says what a Tracker watches.
type TrackerConfig struct {
	// Prefix is the beginning of all keys of nodes, "scheduler:nodes:". Keys are <prefix><node>, or
	// <prefix>{tag}:<node>.
	Prefix string
	// Cells lists the cells. They may be on one server, on several, or on a cluster.
	Cells []TrackedCell
	// Open makes a client that tracks Prefix on one server, as redisclient.Tracker does. Only the
	// Tracker uses it, and closes it.
	Open func(server string, onInvalidations func([]rueidis.RedisMessage)) (rueidis.Client, error)
	// Masters lists a cluster's masters, as ClusterMasters does; nil without a cluster.
	Masters func(context.Context) ([]Master, error)
	// MastersInterval is the time between two calls of Masters; 0 means DefaultMastersInterval.
	MastersInterval time.Duration
	// UnsupportedInterval is the time, with a jitter of half of it, after which a server that
	// cannot track is asked again: it may have been upgraded. 0 means DefaultUnsupportedInterval.
	UnsupportedInterval time.Duration
}

// Tracker gets a notice of every write to a node's profile, even without a script, by client-side
// caching in broadcast mode. It is the second witness beside the events that scripts publish.
//
// It keeps one connection to each server that has cells: each standalone server, or each master of
// a cluster, which it follows through failovers and slot migrations. If a notice may have been lost
// (a new connection, a flush, a cell's new master), it touches all nodes of the cells concerned,
// and of no others.
type Tracker struct {
	cfg     TrackerConfig
	log     *zap.Logger
	metrics *trackerMetrics

	// watches and byTag do not change after NewTracker.
	watches map[int]*Watch
	byTag   map[string]*Watch

	// connections and lost belong to the loop.
	connections map[string]*connection
	lost        chan struct{} // gets a token when a connection was lost

	start  sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	work   sync.WaitGroup // the connections' goroutines; the loop waits for them
}

// NewTracker makes a tracker. It does no I/O. reg may be nil.
func NewTracker(cfg TrackerConfig, log *zap.Logger, reg prometheus.Registerer) *Tracker {
	cfg.MastersInterval = cmp.Or(cfg.MastersInterval, DefaultMastersInterval)
	cfg.UnsupportedInterval = cmp.Or(cfg.UnsupportedInterval, DefaultUnsupportedInterval)
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tracker{
		cfg: cfg, log: log, metrics: newTrackerMetrics(reg),
		watches: make(map[int]*Watch, len(cfg.Cells)), byTag: make(map[string]*Watch, len(cfg.Cells)),
		connections: make(map[string]*connection), lost: make(chan struct{}, 1),
		ctx: ctx, cancel: cancel, done: make(chan struct{}),
	}
	for _, c := range cfg.Cells {
		w := newWatch(watchLimit)
		t.watches[c.Index], t.byTag[c.Tag] = w, w
	}
	return t
}

// Watch returns the watch of a cell, for one reader; nil for an index that is not configured.
func (t *Tracker) Watch(cell int) *Watch { return t.watches[cell] }

// Start tracks until Stop. It returns at once. Watch.Connected returns true once a cell is tracked.
func (t *Tracker) Start(context.Context) error {
	t.start.Do(func() { go t.loop() })
	return nil
}

// Stop closes the connections and waits for that. A server that hangs can delay it for the client's
// dial timeout, or until ctx ends. It may be called twice, and on a tracker that was never started.
func (t *Tracker) Stop(ctx context.Context) error {
	t.start.Do(func() { close(t.done) })
	t.cancel()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop tracker: %w", ctx.Err())
	}
}

// loop owns the connections and keeps them current.
func (t *Tracker) loop() {
	defer close(t.done)
	defer t.metrics.servers.Set(0)
	defer t.work.Wait()
	if t.cfg.Masters == nil {
		t.follow(t.servers())
		<-t.ctx.Done()
		return
	}
	var failed bool
	for t.ctx.Err() == nil {
		masters, err := t.masters()
		if err == nil {
			t.follow(t.owners(masters))
		} else if !failed && t.ctx.Err() == nil {
			t.log.Warn("events.masters_unknown", zap.Error(err))
		}
		failed = err != nil
		t.pause()
	}
}

// pause waits until the next request for the masters.
func (t *Tracker) pause() {
	interval := time.NewTimer(t.cfg.MastersInterval)
	defer interval.Stop()
	select {
	case <-time.After(calm):
	case <-t.ctx.Done():
		return
	}
	select {
	case <-interval.C:
	case <-t.lost:
	case <-t.ctx.Done():
	}
}

func (t *Tracker) masters() ([]Master, error) {
	ctx, cancel := context.WithTimeout(t.ctx, mastersLimit)
	defer cancel()
	return t.cfg.Masters(ctx)
}

// servers returns the watches of each standalone server.
func (t *Tracker) servers() map[string][]*Watch {
	out := make(map[string][]*Watch)
	for _, c := range t.cfg.Cells {
		out[c.Server] = append(out[c.Server], t.watches[c.Index])
	}
	return out
}

// owners returns the watches of each master, also of masters without any: a slot that moves there
// is then tracked from its first write on.
func (t *Tracker) owners(masters []Master) map[string][]*Watch {
	out := make(map[string][]*Watch)
	for _, m := range masters {
		out[m.Addr] = nil
		for _, c := range t.cfg.Cells {
			if m.has(c.Slot) {
				out[m.Addr] = append(out[m.Addr], t.watches[c.Index])
			}
		}
	}
	return out
}

// follow opens missing connections, ends unwanted ones, and touches the watch of every cell with a
// new server.
func (t *Tracker) follow(wanted map[string][]*Watch) {
	for server, c := range t.connections {
		if _, ok := wanted[server]; !ok {
			t.log.Info("events.tracking_given_up", zap.String("server", server))
			c.cancel()
			delete(t.connections, server)
		}
	}
	of := make(map[*Watch][]*connection, len(t.watches))
	for server, watches := range wanted {
		c, ok := t.connections[server]
		if !ok {
			c = t.open(server)
		}
		c.watches.Store(&watches)
		for _, w := range watches {
			of[w] = append(of[w], c)
		}
	}
	for _, w := range t.watches {
		t.assign(w, of[w])
	}
	t.metrics.servers.Set(float64(len(t.connections)))
}

// assign is called after the connections have the watch: a server that connects in between touches
// it twice rather than not at all. The watch is touched before it counts as connected.
func (t *Tracker) assign(w *Watch, now []*connection) {
	before := *w.connections.Load()
	if slices.ContainsFunc(now, func(c *connection) bool { return !slices.Contains(before, c) }) {
		w.touchAll()
		t.metrics.resets.Inc()
	}
	w.connections.Store(&now)
}

// invalidated sorts the keys of one notice by cell. It runs on a connection's reader and must not
// wait. It accepts a key from any server: on a cluster the new master of a slot sends notices
// before the tracker knows that it is the master.
func (t *Tracker) invalidated(keys []rueidis.RedisMessage) {
	for i := range keys {
		key, err := keys[i].ToString()
		if err != nil {
			continue
		}
		t.metrics.invalidations.Inc()
		if tag, node, ok := parseNodeKey(t.cfg.Prefix, key); ok {
			if w := t.byTag[tag]; w != nil {
				w.touch(node)
			}
		}
	}
}

// parseNodeKey splits the key of a node. ok is false for other keys with the prefix, such as the
// set of online nodes.
func parseNodeKey(prefix, key string) (tag, node string, ok bool) {
	node, ok = strings.CutPrefix(key, prefix)
	if !ok {
		return "", "", false
	}
	if rest, tagged := strings.CutPrefix(node, "{"); tagged {
		if tag, node, ok = strings.Cut(rest, "}:"); !ok {
			return "", "", false
		}
	}
	// A name has no colon, so "index:online" is no name.
	return tag, node, freeslot.ValidateName("node", node) == nil
}

// unsupportedError reports whether the server cannot track. A lack of permissions does not count:
// it can change while the server runs.
func unsupportedError(err error) bool {
	return errors.Is(err, rueidis.ErrNoCache) && !strings.Contains(err.Error(), "NOPERM")
}
