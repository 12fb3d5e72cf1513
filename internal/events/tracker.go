package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// DefaultMastersInterval is how often a Tracker asks for a cluster's masters.
const DefaultMastersInterval = time.Second

// DefaultUnsupportedInterval is how often a server that cannot track is asked again.
const DefaultUnsupportedInterval = 30 * time.Second

// mastersLimit bounds one question for the masters: a node that is dead takes that long.
const mastersLimit = 500 * time.Millisecond

// calm is the least time between two questions for the masters, so that a server
// that drops every connection at once does not have them asked without end.
const calm = 50 * time.Millisecond

// TrackedCell says where the keys of one cell are.
type TrackedCell struct {
	Index int
	// Tag is the hash tag in the cell's keys, without braces. It is empty for a
	// cell that is alone; no two cells of a Tracker have the same.
	Tag string
	// Server is what Open takes for the cell's server. Not used on a cluster.
	Server string
	// Slot is the cell's hash slot. Used on a cluster only.
	Slot uint16
}

// TrackerConfig says what a Tracker watches.
type TrackerConfig struct {
	// Prefix is what all keys of nodes begin with, "scheduler:nodes:". Keys are
	// <prefix><node>, or <prefix>{tag}:<node>.
	Prefix string
	// Cells may be on one server, on several, or on a cluster.
	Cells []TrackedCell
	// Open makes a client that tracks Prefix on one server, such as
	// redisclient.Tracker does, for the Tracker's use alone; the Tracker closes it.
	Open func(server string, onInvalidations func([]rueidis.RedisMessage)) (rueidis.Client, error)
	// Masters lists a cluster's masters, as ClusterMasters does; nil where there is no cluster.
	Masters func(context.Context) ([]Master, error)
	// MastersInterval is how often Masters is asked; 0 means DefaultMastersInterval.
	MastersInterval time.Duration
	// UnsupportedInterval is, but for a jitter of half of it, how often a server that
	// cannot track is asked again: it can be upgraded. 0 means DefaultUnsupportedInterval.
	UnsupportedInterval time.Duration
}

// Tracker hears, by client-side caching in broadcast mode, of every write to a
// node's profile, whoever made it: the second witness beside the events that
// scripts publish.
//
// It keeps one connection to each server that has cells: each standalone server,
// or each master of a cluster, which it follows through failovers and slot
// migrations. After whatever may have cost a notice (a new connection, a flush, a
// master that is new to a cell) the cells concerned, and no others, are told
// that all their keys may have changed.
type Tracker struct {
	cfg     TrackerConfig
	log     *zap.Logger
	metrics *trackerMetrics

	// watches and byTag do not change after NewTracker.
	watches map[int]*Watch
	byTag   map[string]*Watch

	// links and lost belong to the loop.
	links map[string]*link
	lost  chan struct{} // a token: a connection was lost

	start  sync.Once
	stop   sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	work   sync.WaitGroup // the links' goroutines; the loop waits for them
}

// NewTracker makes a tracker. It does no I/O. reg may be nil.
func NewTracker(cfg TrackerConfig, log *zap.Logger, reg prometheus.Registerer) *Tracker {
	if cfg.MastersInterval == 0 {
		cfg.MastersInterval = DefaultMastersInterval
	}
	if cfg.UnsupportedInterval == 0 {
		cfg.UnsupportedInterval = DefaultUnsupportedInterval
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tracker{
		cfg: cfg, log: log, metrics: newTrackerMetrics(reg),
		watches: make(map[int]*Watch, len(cfg.Cells)), byTag: make(map[string]*Watch, len(cfg.Cells)),
		links: make(map[string]*link), lost: make(chan struct{}, 1),
		ctx: ctx, cancel: cancel, done: make(chan struct{}),
	}
	for _, c := range cfg.Cells {
		w := newWatch(watchLimit)
		t.watches[c.Index], t.byTag[c.Tag] = w, w
	}
	return t
}

// Watch is what is heard of a cell; nil for an index that is not configured. All
// calls return the same, which is for one reader.
func (t *Tracker) Watch(cell int) *Watch { return t.watches[cell] }

// Start begins to track until Stop. It returns at once; Watch.Connected tells
// when a cell is tracked.
func (t *Tracker) Start(context.Context) error {
	t.start.Do(func() { go t.loop() })
	return nil
}

// Stop closes the connections and waits for that. A server that hangs can hold it
// for the client's timeout of a dial, or until ctx ends. It tolerates a tracker
// that was never started, and being called twice.
func (t *Tracker) Stop(ctx context.Context) error {
	t.start.Do(func() { close(t.done) })
	t.stop.Do(t.cancel)
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop tracker: %w", ctx.Err())
	}
}

// loop owns the links.
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

// pause waits until it is time to ask for the masters again.
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

// servers is the cells of each standalone server.
func (t *Tracker) servers() map[string][]*Watch {
	out := make(map[string][]*Watch)
	for _, c := range t.cfg.Cells {
		out[c.Server] = append(out[c.Server], t.watches[c.Index])
	}
	return out
}

// owners is the cells of each master, those without any included: a slot that
// moves there is then tracked from its first write on.
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

// follow opens what is missing, ends what is no longer wanted, and tells every
// cell that got a server which it did not have.
func (t *Tracker) follow(wanted map[string][]*Watch) {
	for server, l := range t.links {
		if _, ok := wanted[server]; !ok {
			t.log.Info("events.tracking_given_up", zap.String("server", server))
			l.cancel()
			delete(t.links, server)
		}
	}
	links := make(map[*Watch][]*link, len(t.watches))
	for server, watches := range wanted {
		l, ok := t.links[server]
		if !ok {
			l = t.open(server)
		}
		l.watches.Store(&watches)
		for _, w := range watches {
			links[w] = append(links[w], l)
		}
	}
	for _, w := range t.watches {
		t.assign(w, links[w])
	}
	t.metrics.servers.Set(float64(len(t.links)))
}

// assign comes after the links know of the watch: one that connects in between
// tells it twice rather than not at all. The cell is told before it counts as
// connected.
func (t *Tracker) assign(w *Watch, links []*link) {
	if !subset(links, *w.links.Load()) {
		w.touchAll()
		t.metrics.resets.Inc()
	}
	w.links.Store(&links)
}

func subset(part, whole []*link) bool {
	for _, l := range part {
		found := false
		for _, other := range whole {
			found = found || other == l
		}
		if !found {
			return false
		}
	}
	return true
}

// invalidated sorts the keys of one notice to the cells. It runs on a connection's
// reader and must not wait. A key counts whichever server told of it: on a cluster
// the new master of a slot is heard before it is known to be that.
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

// parseNodeKey takes the key of a node apart. Others that begin with prefix, such
// as the set of those online, are not of the form.
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
	// A name has no colon, so "index:online" is none.
	return tag, node, freeslot.ValidateName("node", node) == nil
}

// unsupportedError tells a server that cannot track from one that does not let this
// user: permissions can change while it runs.
func unsupportedError(err error) bool {
	return errors.Is(err, rueidis.ErrNoCache) && !strings.Contains(err.Error(), "NOPERM")
}
