package registry

import (
	"time"

	"github.com/freeslot/freeslot/internal/follow"
)

// viewConfig says how a consumer follows a service.
type viewConfig struct {
	// timeout is T. look is the time between looks. limit is the time after which an unconfirmed
	// instance is gone. spread is the time over which loads after a loss of data are spread, so
	// that not all consumers load at once.
	timeout, look, limit, spread time.Duration
}

// view is what a consumer knows of one service: a state machine without clock and I/O. Its owner
// calls it from one goroutine with now, the time since any fixed moment. The owner carries out what
// want asks for, and gives out what build makes.
//
//	waiting --first look--> loading --last page--> catching --last page--> following
//	                           ^                       ^                       |
//	                           +---- loss of data -----+--------- gap ---------+
//
// Invariant: while it is following, the instances are those that Redis has at head.Revision, and
// the unconfirmed ones, which Redis does not have.
type view struct {
	service string
	cfg     viewConfig

	head    head
	history string // of the server's data; "" while unknown
	// sure is the service's stamp when it was last compared under that history. Another stamp under
	// another history proves nothing: the changes since may come from both.
	sure string
	// waiting is true until the first look.
	waiting bool
	// loaded is true when the instances came from Redis, disk when they came from the disk.
	loaded, disk bool
	instances    map[string]*held
	late         map[string]struct{}      // ids by the last look, even of instances that are still to come
	unconfirmed  map[string]time.Duration // the time since which each is unconfirmed
	// lost is true from a loss of data to the end of the load that follows it.
	lost bool
	// emptied says why the list became empty, as far as events or the view itself know it.
	emptied string

	fetch    follow.Fetch[fetch, *change] // idle while the view is waiting or following
	loads    uint32                       // the number of loads begun
	loadHead head                         // the head of the first page of this load
	lookSoon bool

	answered time.Duration // when Redis last answered
	silent   bool
	// lateFrom is the time from which a look can find instances late that were not late before.
	lateFrom time.Duration
	// outage is true from the first answer after a silence until answers have come in time for two
	// looks. backAt is when the last silence in it ended.
	outage bool
	backAt time.Duration
	// missed is true if a look has failed since the last answer.
	missed  bool
	redisMS int64 // Redis' time as last seen
	// overridesEnd is when the next override ends, by Redis' time; 0 means never.
	overridesEnd int64

	all     []*Instance         // sorted by id, as last built
	changed map[string]struct{} // ids whose current instances are not in all
	dirty   bool                // the list must be built
	shown   *List
	gaps    int // for metrics
}

// held is an instance with the number of the load that last brought it.
type held struct {
	in   *Instance
	load uint32
}

// fetch is a page that a view wants: part of a load, or of changes.
type fetch struct {
	number uint64
	load   bool
	cursor string
	since  int64
	birth  string
}

func newView(service string, cfg viewConfig, now time.Duration) *view {
	return &view{
		service: service, cfg: cfg, waiting: true, answered: now,
		instances: make(map[string]*held), late: make(map[string]struct{}), unconfirmed: make(map[string]time.Duration),
		changed: make(map[string]struct{}),
	}
}

// following reports whether the view has all changes up to head.Revision.
func (v *view) following() bool { return !v.waiting && v.fetch.Idle() }

// timeout returns the T that lateness is judged by.
func (v *view) timeout() time.Duration { return max(v.cfg.timeout, 2*v.head.Longest) }

// restore takes instances from the disk. Call it only on a new view.
func (v *view) restore(h head, instances []*Instance) {
	if !v.waiting || v.disk || h.Birth == "" {
		return
	}
	v.head, v.disk, v.dirty = h, true, true
	for _, in := range instances {
		v.instances[in.ID] = &held{in: in}
		v.changed[in.ID] = struct{}{}
	}
}

// event takes a message.
func (v *view) event(c *change, now time.Duration) {
	if c.Revision <= 0 { // of the first version: it does not say what has changed
		v.lookSoon = true
		return
	}
	if !v.following() {
		v.fetch.Hold(c)
		return
	}
	switch {
	case v.head.Revision == 0 && c.Revision == 1: // it had no record
		v.head.Birth = c.Birth
		v.apply(c)
	case c.Birth != v.head.Birth:
		v.lose(now)
	case c.Revision <= v.head.Revision:
	case c.Revision == v.head.Revision+1:
		v.apply(c)
	default:
		v.gaps++
		v.catchUp(now)
	}
}

func (v *view) apply(c *change) {
	v.seen(c.At)
	v.head.Revision, v.head.Stamp = c.Revision, c.Stamp
	for i := range c.Entries {
		v.take(&c.Entries[i])
	}
	if len(v.instances) == 0 {
		v.head.Why = whyOf(c.Reason)
	} else {
		v.head.Why = ""
	}
	v.dirty = true
}

// whyOf returns why a service is empty after a removal for this reason.
func whyOf(reason string) string {
	switch reason {
	case "deregistered":
		return WhyDeregistered
	case "expired":
		return WhyExpired
	}
	return WhyRemoved
}

// metrics takes over the figures of an instance.
func (v *view) metrics(f *measured) {
	h := v.instances[f.ID]
	if h == nil {
		return
	}
	in := *h.in
	in.Metrics = f.Metrics
	v.put(h, &in)
}

// asked is what a look must know of a view when it is sent.
type asked struct {
	loads    uint32
	revision int64
	birth    string
	// history is true if the look must ask for the server's history.
	history bool
}

// ask begins a look.
func (v *view) ask() asked {
	v.lookSoon = false
	return asked{loads: v.loads, revision: v.head.Revision, birth: v.head.Birth, history: v.history == ""}
}

// looked takes over the result of a look.
func (v *view) looked(a asked, l *looked, now time.Duration) {
	if v.missed { // Redis is back, so the fetch need not wait any longer
		v.fetch.Hasten(now)
	}
	v.heard(now)
	v.seen(l.at)
	v.setLate(l.late, now)
	if v.head.Longest != l.head.Longest || v.head.Guard != l.head.Guard {
		v.head.Longest, v.head.Guard, v.dirty = l.head.Longest, l.head.Guard, true
	}
	if v.waiting {
		v.history = l.history
		v.begin(now)
		return
	}
	if !v.following() || a.loads != v.loads || a.birth != v.head.Birth {
		return // it is older than what the view is about to get
	}
	equal := l.head.Revision == v.head.Revision && l.head.Stamp == v.head.Stamp && l.head.Birth == v.head.Birth
	other := l.history != "" && v.history != "" && l.history != v.history
	if l.history != "" {
		v.history = l.history
	}
	switch {
	case equal && other && v.sure != v.head.Stamp:
		v.lose(now)
	case equal:
		if l.history != "" {
			v.sure = v.head.Stamp
		}
		if l.head.Why != "" {
			v.head.Why = l.head.Why
		}
	case other, l.head.Birth != v.head.Birth, l.head.Revision < a.revision, l.head.Revision == v.head.Revision:
		v.lose(now)
	case l.head.Revision > v.head.Revision:
		v.catchUp(now)
	}
}

// heard records an answer of Redis. When Redis is back from a silence, everything that counts time
// starts anew, but only once in an outage: answers that are merely slow must not put lateness off
// for ever. In the same outage it starts anew again only after looks have failed for a time in
// which providers, too, may have missed heartbeats.
func (v *view) heard(now time.Duration) {
	switch {
	case v.stale(now):
		if !v.outage || v.missed && now-v.answered > v.timeout()/2 {
			v.outage, v.lateFrom = true, now+v.timeout()
			for id := range v.unconfirmed {
				v.unconfirmed[id] = now
			}
		}
		v.backAt = now
	case v.outage && now-v.backAt > 2*v.cfg.look:
		v.outage = false
	}
	v.answered, v.missed = now, false
	v.setSilent(false)
}

// lookFailed records that a look got no answer.
func (v *view) lookFailed() { v.missed = true }

func (v *view) stale(now time.Duration) bool { return now-v.answered > 2*v.cfg.look }

func (v *view) setSilent(silent bool) {
	if v.silent != silent {
		v.silent, v.dirty = silent, true
	}
}

// setLate marks the instances whose heartbeats are missing.
func (v *view) setLate(ids []string, now time.Duration) {
	next := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		if _, before := v.late[id]; before || now >= v.lateFrom {
			next[id] = struct{}{}
		}
	}
	before := v.late
	v.late = next
	for id := range before {
		if _, still := next[id]; !still {
			v.mark(id)
		}
	}
	for id := range next {
		if _, already := before[id]; !already {
			v.mark(id)
		}
	}
}

// mark updates Late and Unconfirmed of an instance. It leaves unconfirmed instances, which Redis
// does not know, to tick.
func (v *view) mark(id string) {
	h := v.instances[id]
	if h == nil {
		return
	}
	_, late := v.late[id]
	if _, unconfirmed := v.unconfirmed[id]; unconfirmed || h.in.Late == late {
		return
	}
	in := *h.in
	in.Late = late
	v.put(h, &in)
}

// put replaces the current version of an instance.
func (v *view) put(h *held, in *Instance) {
	h.in = in
	v.changed[in.ID] = struct{}{}
	v.dirty = true
}

// seen records Redis' time, at which overrides end.
func (v *view) seen(atMS int64) {
	v.redisMS = atMS
	if v.overridesEnd == 0 || atMS < v.overridesEnd {
		return
	}
	v.overridesEnd = 0
	for _, h := range v.instances {
		o := h.in.Override
		if o == nil || o.UntilMS == 0 {
			continue
		}
		in := *h.in
		in.applyOverride(atMS)
		v.put(h, &in)
		v.watchOverride(o)
	}
}

func (v *view) watchOverride(o *Override) {
	if o != nil && o.UntilMS > v.redisMS && (v.overridesEnd == 0 || o.UntilMS < v.overridesEnd) {
		v.overridesEnd = o.UntilMS
	}
}

// take takes over one instance as Redis has it.
func (v *view) take(e *entry) {
	h := v.instances[e.ID]
	if len(e.Fields) == 0 {
		v.remove(e.ID)
		return
	}
	in := instanceOf(v.service, e)
	in.applyOverride(v.redisMS)
	v.watchOverride(in.Override)
	_, unconfirmed := v.unconfirmed[e.ID]
	delete(v.unconfirmed, e.ID)
	if h == nil {
		h = &held{}
		v.instances[e.ID] = h
	} else if h.in.Epoch != in.Epoch || unconfirmed {
		delete(v.late, e.ID)
	}
	_, in.Late = v.late[e.ID]
	h.load, v.emptied = v.loads, ""
	v.put(h, in)
}

func (v *view) remove(id string) {
	if _, there := v.instances[id]; !there {
		return
	}
	delete(v.instances, id)
	delete(v.unconfirmed, id)
	delete(v.late, id)
	v.changed[id] = struct{}{}
	v.dirty = true
}

// tick lets time pass: it notices that Redis is silent, and ages the unconfirmed instances.
func (v *view) tick(now time.Duration) {
	if v.stale(now) {
		v.setSilent(true)
		return
	}
	for id, since := range v.unconfirmed {
		age := now - since
		h := v.instances[id]
		switch {
		case age >= v.cfg.limit:
			v.remove(id)
			if len(v.instances) == 0 {
				v.emptied = WhyExpired
			}
		case age >= v.timeout() && !h.in.Late:
			in := *h.in
			in.Late = true
			v.put(h, &in)
		}
	}
}
