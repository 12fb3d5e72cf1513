package namelist

import (
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// lookEvery is the time between looks at all lists. soonEvery is the least time between two
	// looks out of turn.
	lookEvery = time.Second
	soonEvery = 10 * time.Millisecond
	// historyEvery is how often looks ask for the history of the server's data.
	historyEvery = time.Minute
	// reportEvery is how often the client reports what it has loaded and serves.
	reportEvery = 5 * time.Second
	// tickEvery is how often views learn that time has passed.
	tickEvery = 100 * time.Millisecond
	// eventQueue bounds the events that wait. An event that finds the queue full is lost, and then
	// all lists are looked at. eventsAtOnce bounds the events that are taken before other work.
	eventQueue   = 8192
	eventsAtOnce = 256
	// fetchesAtOnce and blocksAtOnce bound the calls of their kind.
	fetchesAtOnce = 8
	blocksAtOnce  = 4
	// The wait after a failed connection or long poll grows.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
	// diskPatience is how long a list waits for Redis before it is taken from the disk.
	diskPatience = 500 * time.Millisecond
)

// follower keeps the views of a client's lists. Only its loop uses them.
type follower struct {
	c      *Client
	begun  time.Time
	source source // nil until the control server was reached
	outage *logging.Outage
	// counting fails alone if the client has no right to report on chains: that harms statistics.
	counting *logging.Outage

	events  chan heard
	lost    atomic.Bool // events were lost: look at all lists, with the history
	results chan func(now time.Duration)

	lists            map[string]*List
	chains           map[string]*Chain
	fetching, blocks int
	used             int64 // bytes of all lists, including what is being loaded
	budget           int64

	looking    bool
	nextLook   time.Duration
	nextAsk    time.Duration // for the history
	reporting  bool
	nextReport time.Duration
}

// heard is an event of a list or of a chain.
type heard struct {
	list  *List
	chain *Chain
	event lists.Event
}

// followed is what the follower stores with a list.
type followed struct {
	view      *view
	since     time.Duration
	restoring bool
	reported  lists.ClientReport
	stop      func()
}

func newFollower(c *Client) *follower {
	return &follower{
		c: c, begun: time.Now(), outage: logging.NewOutage(c.log, "namelist.redis_lost", "namelist.redis_back"),
		counting: logging.NewOutage(c.log, "namelist.chain_reports_lost", "namelist.chain_reports_back"),
		events:   make(chan heard, eventQueue), results: make(chan func(time.Duration)),
		lists: make(map[string]*List), chains: make(map[string]*Chain), budget: c.cfg.MaxBytes - c.cache.limit,
	}
}

// now returns the time since the start, by a clock that never steps.
func (f *follower) now() time.Duration { return time.Since(f.begun) }

func (f *follower) loop(open func(context.Context) (source, error)) {
	f.c.loops.Go(func() { f.connect(open) })
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	defer f.stop()
	for {
		select {
		case <-f.c.ctx.Done():
			return
		case h := <-f.events:
			f.take(h)
		case result := <-f.results:
			result(f.now())
		case <-f.c.added:
			f.add()
		case <-f.c.look:
			f.nextLook = min(f.nextLook, f.now())
		case <-ticker.C:
		}
		f.runDue(f.now())
	}
}

func (f *follower) stop() {
	var stops sync.WaitGroup
	for _, l := range f.lists {
		if l.follower.stop != nil {
			stops.Go(l.follower.stop)
		}
	}
	for _, c := range f.chains {
		if c.follower.stop != nil {
			stops.Go(c.follower.stop)
		}
	}
	stops.Wait()
}

// connect connects to the control server.
func (f *follower) connect(open func(context.Context) (source, error)) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	for {
		ctx, cancel := context.WithTimeout(f.c.ctx, callTimeout)
		on, err := open(ctx)
		cancel()
		if err == nil {
			f.c.source.Store(&on)
			f.post(func(time.Duration) { f.use(on) })
			return
		}
		f.post(func(time.Duration) { f.failed(err) })
		select {
		case <-time.After(wait.NextBackOff()):
		case <-f.c.ctx.Done():
			return
		}
	}
}

// post makes the loop call a function.
func (f *follower) post(result func(now time.Duration)) {
	select {
	case f.results <- result:
	case <-f.c.ctx.Done():
	}
}

func (f *follower) failed(err error) {
	if f.c.ctx.Err() == nil {
		f.c.metrics.failed.Inc()
		f.c.setFailure(err)
		f.outage.Failed(err)
	}
}

func (f *follower) use(on source) {
	f.source = on
	for _, l := range f.lists {
		f.follow(l)
	}
	for _, c := range f.chains {
		f.followChain(c)
	}
}

// add takes over the new lists and chains.
func (f *follower) add() {
	f.c.mu.Lock()
	fresh, chains := f.c.fresh, f.c.freshChains
	f.c.fresh, f.c.freshChains = nil, nil
	f.c.mu.Unlock()
	for _, c := range chains {
		f.addChain(c)
	}
	for _, l := range fresh {
		f.lists[l.name] = l
		l.follower.since = f.now()
		l.follower.view = newView(l.name, f.now())
		if f.source != nil {
			f.follow(l)
		}
	}
}

// follow subscribes to a list's events.
func (f *follower) follow(l *List) {
	l.follower.stop = f.source.follow(l.name, f.hear(func(e lists.Event) heard { return heard{list: l, event: e} }))
}

// hear returns what queues the events of a list or a chain.
func (f *follower) hear(of func(lists.Event) heard) func(lists.Event) {
	return func(e lists.Event) {
		if e.Revision > 0 {
			select {
			case f.events <- of(e):
				return
			default:
			}
		}
		f.lost.Store(true)
		f.c.lookSoon()
	}
}

// take takes an event, and those that came with it.
func (f *follower) take(h heard) {
	for range eventsAtOnce {
		if h.chain != nil {
			h.chain.follower.view.event(&h.event, f.now())
		} else {
			v := h.list.follower.view
			gaps := v.gaps
			v.event(&h.event, f.now())
			f.c.metrics.gaps.Add(float64(v.gaps - gaps))
		}
		select {
		case h = <-f.events:
		default:
			return
		}
	}
}

// runDue does the work that is due.
func (f *follower) runDue(now time.Duration) {
	f.used = 0
	for _, l := range f.lists {
		f.used += l.follower.view.bytes()
	}
	f.c.metrics.bytes.Set(float64(f.used))
	stale := 0
	for _, l := range f.lists {
		v := l.follower.view
		f.fetch(l, now)
		f.load(l, now)
		f.restore(l, now)
		if v.tick(now); v.dirty {
			f.c.publish(l, v.snapshot(f.begun, now, f.fits))
		}
		if v.stale {
			stale++
		}
	}
	f.c.metrics.stale.Set(float64(stale))
	f.runChains(now)
	if f.source != nil {
		f.lookAll(now)
		f.report(now)
	}
}

func (f *follower) fits(bytes int64) bool { return f.used+bytes <= f.budget }

// fetch requests the page that a view wants.
func (f *follower) fetch(l *List, now time.Duration) {
	if f.source == nil || f.fetching == fetchesAtOnce {
		return
	}
	v := l.follower.view
	want, due := v.want(now)
	if !due {
		return
	}
	f.fetching++
	f.c.spawn(func() {
		ctx, cancel := context.WithTimeout(f.c.ctx, callTimeout)
		defer cancel()
		d, err := f.source.delta(ctx, l.name, want.after)
		f.post(func(at time.Duration) {
			f.fetching--
			setFailure(&l.failure, err)
			if err != nil {
				f.failed(err)
				v.fetch.Failed(want.number, at)
				return
			}
			f.reached()
			v.delta(want.number, &d, now, at)
		})
	})
}

// setFailure records how the last call for a list or a chain alone ended.
func setFailure(of *atomic.Pointer[error], err error) {
	if err == nil {
		of.Store(nil)
		return
	}
	of.Store(&err)
}

func (f *follower) reached() {
	f.c.setFailure(nil)
	f.outage.Over()
}

// load requests blocks that a view wants.
func (f *follower) load(l *List, now time.Duration) {
	v := l.follower.view
	for f.source != nil && f.blocks < blocksAtOnce {
		of, index, due := v.wantBlock(now, f.fits)
		if !due {
			return
		}
		f.used += of.need(index)
		f.blocks++
		f.c.spawn(func() {
			ctx, cancel := context.WithTimeout(f.c.ctx, blockTimeout)
			defer cancel()
			var b *filter.Block
			var keys uint32
			var ids map[string]int64
			var err error
			if index == allIDs {
				ids, err = f.source.whole(ctx, l.name, of.version)
			} else {
				b, keys, err = loadBlock(ctx, f.source, l.name, of.version, index)
			}
			f.post(func(at time.Duration) {
				f.blocks--
				setFailure(&l.failure, err)
				switch {
				case err != nil:
					f.c.metrics.failed.Inc()
					v.notLoaded(of, index, err, at)
				case ids != nil:
					v.whole(of, ids)
				default:
					v.block(of, index, b, keys)
				}
			})
		})
	}
}

func loadBlock(
	ctx context.Context, from source, list string, v *lists.Version, index uint32,
) (*filter.Block, uint32, error) {
	wire, err := from.block(ctx, list, v, index)
	if err != nil {
		return nil, 0, err
	}
	return decodeBlock(wire, v.Build, index)
}

// decodeBlock decodes a block, and also returns the number of its keys, which a snapshot needs.
func decodeBlock(wire []byte, build string, index uint32) (*filter.Block, uint32, error) {
	b, err := filter.Decode(wire, build, index)
	if err != nil {
		return nil, 0, err
	}
	return b, binary.LittleEndian.Uint32(wire[blockKeys:]), nil
}

// blockKeys is the offset of the number of keys in the wire form of a block.
const blockKeys = 28

// restore takes a list from the disk if Redis did not send it in time.
func (f *follower) restore(l *List, now time.Duration) {
	s := &l.follower
	if f.c.disk == nil || s.restoring || s.view.shown.why != ReasonNotLoaded || now-s.since < diskPatience {
		return
	}
	s.restoring = true
	f.c.spawn(func() {
		var saved *saved
		ok := f.c.disk.Read(l.name, func(data []byte) (err error) {
			saved, err = decodeSnapshot(data, l.name)
			return err
		})
		f.post(func(at time.Duration) {
			if ok {
				s.view.restore(saved, f.begun, at, f.fits)
			}
		})
	})
}

// lookAll compares all lists and chains with the control server, if that is due.
func (f *follower) lookAll(now time.Duration) {
	if f.looking || now < f.nextLook || len(f.lists)+len(f.chains) == 0 {
		return
	}
	f.looking = true
	history := f.lost.Swap(false) || now >= f.nextAsk
	f.nextLook = now + lookEvery*3/4 + rand.N(lookEvery/4)
	var parts [][]string
	before := make(map[string]asked, len(f.lists)+len(f.chains))
	for name, l := range f.lists {
		before[name] = l.follower.view.ask()
	}
	for name, c := range f.chains {
		before[lists.ChainMark(name)] = asked{fetches: c.follower.view.fetch.Number()}
	}
	for part := range slices.Chunk(slices.Collect(maps.Keys(before)), lists.LookLists) {
		parts = append(parts, part)
	}
	f.c.spawn(func() {
		for _, names := range parts {
			ctx, cancel := context.WithTimeout(f.c.ctx, callTimeout)
			sent := f.now()
			marks, is, at, err := f.source.poll(ctx, names, history)
			cancel()
			f.post(func(now time.Duration) {
				if err != nil {
					f.failed(err)
					f.lost.Store(true) // ask for the history once the server is back
					return
				}
				f.reached()
				if history {
					f.nextAsk = now + historyEvery
				}
				for i, name := range names {
					if chain, ok := lists.ChainOf(name); ok {
						f.chains[chain].follower.view.looked(before[name].fetches, marks[i], is, sent, now)
					} else {
						f.lists[name].follower.view.looked(before[name], marks[i], is, at, sent, now)
					}
				}
			})
		}
		f.post(func(now time.Duration) { f.looking, f.nextLook = false, max(f.nextLook, now+soonEvery) })
	})
}

// report reports what is loaded and served, and what chains have decided, regularly and after
// changes.
func (f *follower) report(now time.Duration) {
	if f.reporting {
		return
	}
	all, changed := make(map[string]lists.ClientReport), false
	for name, l := range f.lists {
		r := f.reportOf(l)
		if r.Birth == "" {
			continue
		}
		was := l.follower.reported
		changed = changed || r.Birth != was.Birth || r.Serves != was.Serves || !slices.Equal(r.Loaded, was.Loaded)
		all[name] = r
	}
	chains, fresh := f.chainReports()
	if len(all)+len(chains) == 0 || !changed && !fresh && now < f.nextReport {
		return
	}
	f.reporting, f.nextReport = true, now+reportEvery
	for name, r := range all {
		f.lists[name].follower.reported = r
	}
	for mark := range chains {
		name, _ := lists.ChainOf(mark)
		f.chains[name].follower.reported = true
	}
	f.c.spawn(func() {
		if err := f.c.report(f.c.ctx, f.source, all, lists.ReportLists); err != nil {
			f.post(func(time.Duration) { f.failed(err) })
		}
		err := f.c.report(f.c.ctx, f.source, chains, chainReportsAtOnce)
		f.post(func(time.Duration) {
			f.reporting = false
			if err == nil {
				f.counting.Over()
			} else if f.c.ctx.Err() == nil {
				f.counting.Failed(err)
			}
		})
	})
}

// reportOf returns what the client has of a list.
func (f *follower) reportOf(l *List) lists.ClientReport {
	v, p := l.follower.view, l.snapshot.Load()
	r := lists.ClientReport{Birth: v.birth, Revision: p.revision, SDK: sdk, Counts: f.c.counted(l)}
	if p.version != nil {
		r.Serves = p.version.Number
		if p.ready {
			r.Loaded = append(r.Loaded, r.Serves)
		}
	}
	if v.next != nil && v.prepared(v.next, f.fits) && v.next.version.Number != r.Serves {
		r.Loaded = append(r.Loaded, v.next.version.Number)
	}
	return r
}

// sdk is the name of this package in reports.
const sdk = "go"
