package demand

import (
	"context"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// interval is the time between two pictures. It varies by an eighth. The queues are counted as
	// often.
	interval = 5 * time.Second
	// longestStep bounds the time for which the rates of one answer count.
	longestStep = 30 * time.Second
	callTimeout = time.Second
)

// Jobs counts waiting jobs. *dispatch.Dispatcher implements it.
type Jobs interface {
	KindBacklogs() (all map[dispatch.Kind]dispatch.KindBacklog, unreachable []int)
}

// Nodes knows the fleet. *cache.Cache implements it.
type Nodes interface {
	Present(limit time.Duration) iter.Seq[*selection.Node]
	SilenceLimit() time.Duration
	Config() *selection.Config
	Stale() bool
}

// Statuses returns what the running replicas say of themselves by name, as JSON objects in which
// the field "demand" has what their meters took.
type Statuses func(ctx context.Context) (map[string]string, error)

// Watch keeps the demand up to date until Stop. Its methods are safe for concurrent use.
type Watch struct {
	jobs     Jobs
	nodes    Nodes
	statuses Statuses
	outage   *logging.Outage
	current  atomic.Pointer[DemandList]

	start, stop sync.Once
	ctx         context.Context
	cancel      context.CancelFunc
	done        chan struct{}

	// The loop alone uses these.
	rates  map[dispatch.Kind]*rates
	starts map[string]*starts // by pool
	// proposals has what each pool with a target needed.
	proposals map[string]*proposal
	// knownSince is the time since which all nodes and cells have been known; zero while some are not.
	knownSince time.Time
	at         time.Time // of the last picture
}

// NewWatch makes a watch. It does no I/O.
func NewWatch(jobs Jobs, nodes Nodes, statuses Statuses, log *zap.Logger) *Watch {
	w := &Watch{
		jobs: jobs, nodes: nodes, statuses: statuses, done: make(chan struct{}),
		outage: logging.NewOutage(log, "demand.read_failed", "demand.read_again"),
		rates:  make(map[dispatch.Kind]*rates), starts: make(map[string]*starts),
		proposals: make(map[string]*proposal),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.current.Store(&DemandList{Pools: []PoolDemand{}, Stale: true})
	return w
}

// Current returns the last picture. The caller must not change it.
func (w *Watch) Current() *DemandList { return w.current.Load() }

// Start starts the loop. It does not wait.
func (w *Watch) Start(context.Context) error {
	w.start.Do(func() { go w.run() })
	return nil
}

// Stop ends the loop.
func (w *Watch) Stop(ctx context.Context) error {
	w.start.Do(func() { close(w.done) })
	w.stop.Do(w.cancel)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Watch) run() {
	defer close(w.done)
	for {
		w.Refresh()
		pause := time.NewTimer(interval*7/8 + rand.N(interval/4))
		select {
		case <-pause.C:
		case <-w.ctx.Done():
			pause.Stop()
			return
		}
	}
}

// Refresh makes a picture now. While Redis does not answer, rates stay as they are. It is for one
// caller at a time, and the loop is one.
func (w *Watch) Refresh() {
	ctx, cancel := context.WithTimeout(w.ctx, callTimeout)
	texts, err := w.statuses(ctx)
	cancel()
	now := time.Now()
	since := min(now.Sub(w.at), longestStep)
	if w.at.IsZero() {
		since = 0
	}
	w.at = now
	switch {
	case err == nil:
		w.outage.Over()
		observe(w.rates, sum(texts), since)
	case w.ctx.Err() == nil:
		w.outage.Failed(err)
	}
	w.current.Store(w.picture(now, since))
}

// sum adds up what the replicas tell. A replica of an older release tells nothing.
func sum(texts map[string]string) map[dispatch.Kind]Told {
	all := make(map[dispatch.Kind]Told)
	for _, text := range texts {
		var told struct {
			Demand []Told `json:"demand"`
		}
		_ = json.Unmarshal([]byte(text), &told) // another release may say anything
		for _, t := range told.Demand {
			k := dispatch.Kind{Pool: t.Pool, Service: t.Service}
			of := all[k]
			all[k] = Told{
				Came: of.Came + t.Came, Slots: of.Slots + t.Slots, Ended: of.Ended + t.Ended, Ran: of.Ran + t.Ran,
			}
		}
	}
	return all
}

func (w *Watch) picture(now time.Time, since time.Duration) *DemandList {
	cfg := w.nodes.Config()
	backlogs, unreachable := w.jobs.KindBacklogs()
	p := newPools(cfg)
	for k, r := range w.rates {
		p.addJobs(k, backlogs[k], r, now)
	}
	for k, b := range backlogs {
		if w.rates[k] == nil {
			p.addJobs(k, b, new(rates), now)
		}
	}
	p.addNodes(w.nodes.Present(w.nodes.SilenceLimit()), cfg)
	stale := w.nodes.Stale()
	w.addRuns(p, since)
	if w.knows(!stale && len(unreachable) == 0, now) {
		w.propose(p, now)
	} else {
		for _, of := range w.proposals {
			of.hold(now)
		}
	}
	return &DemandList{Pools: p.sorted(), AtMS: now.UnixMilli(), Stale: stale, Unreachable: unreachable}
}

// knows reports whether all nodes and cells have been known for the limit of silence. By then each
// living node has sent a heartbeat: after an outage of Redis all nodes are silent at first.
func (w *Watch) knows(all bool, now time.Time) bool {
	switch {
	case !all:
		w.knownSince = time.Time{}
		return false
	case w.knownSince.IsZero():
		w.knownSince = now
	}
	return now.Sub(w.knownSince) >= w.nodes.SilenceLimit()
}

// addRuns sets the mean run time of each pool.
func (w *Watch) addRuns(p *pools, since time.Duration) {
	before := w.starts
	w.starts = make(map[string]*starts, len(p.list))
	jobs := make(map[string]*rates)
	for k, r := range w.rates {
		of := jobs[k.Pool]
		if of == nil {
			of = new(rates)
			jobs[k.Pool] = of
		}
		of.came, of.slots, of.ended, of.ran = of.came+r.came, of.slots+r.slots, of.ended+r.ended, of.ran+r.ran
		of.arrivals += r.arrivals * r.slotsPerJob()
	}
	for _, row := range p.list {
		s, r := before[row.Pool], jobs[row.Pool]
		if r == nil {
			r = new(rates)
		}
		if s == nil {
			s = &starts{waiting: row.waitingSlots}
		}
		w.starts[row.Pool] = s
		s.add(float64(row.UsedSlots), row.waitingSlots, r.arrivals, since)
		row.RunMS, row.slotArrivals = millis(s.run(r)), r.arrivals
	}
}

// propose sets how many nodes each pool with a target should have.
func (w *Watch) propose(p *pools, now time.Time) {
	before := w.proposals
	w.proposals = make(map[string]*proposal)
	for _, row := range p.list {
		if row.target == 0 {
			continue
		}
		all := before[row.Pool]
		if all == nil {
			all = newProposal(now, row.Nodes)
		}
		w.proposals[row.Pool] = all
		l := load{
			used: float64(row.UsedSlots), wanted: float64(row.WantedSlots), arrivals: row.slotArrivals,
			target: row.target.Seconds(), there: row.Nodes,
		}
		if row.RunMS != nil {
			l.run = *row.RunMS / 1000
		}
		all.slots = row.slotsPerNode(all.slots)
		wanted := all.add(now, l.nodes(all.slots))
		row.NodesWanted = &wanted
	}
}
