package registry

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// buildEvery is the least time between two lists of a service, since long lists are costly to
	// make and to prepare for picks. Shorter lists need only buildEach per instance, so that their
	// changes are seen at once.
	buildEvery = 10 * time.Millisecond
	buildEach  = time.Microsecond
	// tickEvery is how often views learn that time has passed.
	tickEvery = 250 * time.Millisecond
	// fetchesAtOnce bounds the pages that are fetched at the same time.
	fetchesAtOnce = 8
	// subscribePatience is how long the first look waits for the subscription, so that it need not
	// be repeated for what was missed before. diskPatience is how long a new view waits for Redis
	// before it is taken from the disk.
	subscribePatience = 100 * time.Millisecond
	diskPatience      = 500 * time.Millisecond
	// historyEvery is how often looks ask for the history of the server.
	historyEvery = time.Minute
	// soonEvery is the least time between two looks out of turn.
	soonEvery = 10 * time.Millisecond
	// reconnectSpread is the time over which consumers spread their looks after their subscriptions
	// broke.
	reconnectSpread = 2 * time.Second
	// messagesAtOnce bounds the messages that are taken before other work.
	messagesAtOnce = 256
	// defaultLimit is the time after which an unconfirmed instance is gone.
	defaultLimit = 2 * time.Minute
	// firstLookRetry is the wait after a failed look, doubling up to the interval of looks.
	firstLookRetry = 100 * time.Millisecond
)

// follower keeps the views of a consumer. Only its loop uses it.
type follower struct {
	c     *Consumer
	begun time.Time
	conn  *conn // nil until Redis was reached
	hub   *hub  // nil until then

	results chan func(now time.Duration)
	look    time.Duration // the interval
	outage  *logging.Outage

	services map[string]*followed
	channels map[string]*followed // by channel
	queue    []*followed          // a page is due
	later    map[*followed]struct{}
	dirty    map[*followed]struct{} // the list is to be built, but not yet
	fetching int

	nextTick time.Duration
	tags     []tagLooks // empty until Redis was reached

	again   map[*followed]struct{} // subscribed again
	againAt time.Duration
}

// followerState is what the follower stores with a service.
type followerState struct {
	view       *view
	since      time.Duration
	subscribed bool
	queued     bool
	removed    bool
	restoring  bool
	built      time.Duration
}

func newFollower(c *Consumer) *follower {
	return &follower{
		c: c, begun: time.Now(), results: make(chan func(time.Duration), fetchesAtOnce), look: c.opts.lookInterval(),
		outage:   logging.NewOutage(c.log, "registry.redis_lost", "registry.redis_back"),
		services: make(map[string]*followed), channels: make(map[string]*followed), later: make(map[*followed]struct{}),
		dirty: make(map[*followed]struct{}),
		again: make(map[*followed]struct{}),
	}
}

// now returns the time since the start, by a clock that never steps.
func (f *follower) now() time.Duration { return time.Since(f.begun) }

func (f *follower) loop() {
	defer func() {
		if f.hub != nil {
			f.hub.wait()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	reached := f.c.redis.reached
	var messages <-chan hubMessage
	var lost, fresh <-chan struct{}
	for {
		if f.hub != nil {
			messages, lost, fresh = f.hub.messages, f.hub.lost, f.hub.fresh
		}
		select {
		case <-f.c.ctx.Done():
			return
		case m := <-messages:
			f.messages(m)
		case <-lost:
			f.c.metrics.lost.Inc()
			f.lookAtAll()
			f.c.documents.pokeAll()
		case <-fresh:
			f.subscribed()
		case result := <-f.results:
			result(f.now())
		case <-f.c.poke:
			f.takeServices()
		case <-reached:
			reached = nil
			f.use(f.c.redis.on.Load())
		case <-timer.C:
		}
		timer.Reset(f.runDue(f.now()))
	}
}

// use starts following over a connection.
func (f *follower) use(on *conn) {
	f.conn = on
	f.hub = newHub(f.c.ctx, on, f.c.log)
	f.hub.start()
	f.tags = make([]tagLooks, len(on.runners))
	for i := range f.tags {
		f.tags[i].soon = make(map[*followed]struct{})
	}
	for _, s := range f.services {
		f.want(s)
	}
	f.c.documents.use(on, f.hub)
}

// want subscribes to a service's channels.
func (f *follower) want(s *followed) {
	runner, k := f.conn.of(s.service)
	slot, _ := runner.Layout().Slot()
	f.channels[k.change(s.service)] = s
	f.hub.want(k.change(s.service), slot)
	if f.c.opts.Figures {
		f.channels[k.metrics(s.service)] = s
		f.hub.want(k.metrics(s.service), slot)
	}
}

// takeServices takes over the services that were added and removed.
func (f *follower) takeServices() {
	f.c.mu.Lock()
	added, removed := f.c.added, f.c.removed
	f.c.added, f.c.removed = nil, nil
	f.c.mu.Unlock()
	now := f.now()
	// Removed first: a service that was removed and followed again is a new one with the same
	// channels.
	for _, s := range removed {
		f.drop(s)
	}
	for _, s := range added {
		if s.follower.removed {
			continue
		}
		s.follower.since = now
		s.follower.view = newView(s.service, viewConfig{
			timeout: f.c.opts.Timeout, look: f.look, limit: defaultLimit, spread: rand.N(f.c.opts.Timeout/10 + 1),
		}, now)
		f.services[s.service] = s
		if f.hub != nil {
			f.want(s)
		}
		f.later[s] = struct{}{}
	}
	f.c.metrics.services.Set(float64(len(f.services)))
}

func (f *follower) drop(s *followed) {
	s.follower.removed = true
	if f.services[s.service] != s {
		return
	}
	delete(f.services, s.service)
	for _, set := range []map[*followed]struct{}{f.later, f.dirty, f.again} {
		delete(set, s)
	}
	if f.hub == nil {
		return
	}
	delete(f.tagOf(s).soon, s)
	_, k := f.conn.of(s.service)
	for _, channel := range []string{k.change(s.service), k.metrics(s.service)} {
		delete(f.channels, channel)
		f.hub.leave(channel)
	}
}

// messages takes a message, and those that came with it.
func (f *follower) messages(m hubMessage) {
	now := f.now()
	for range messagesAtOnce {
		if s := f.channels[m.channel]; s != nil {
			f.message(s, m, now)
		} else {
			f.c.documents.poke(m.channel)
		}
		select {
		case m = <-f.hub.messages:
		default:
			return
		}
	}
}

func (f *follower) message(s *followed, m hubMessage, now time.Duration) {
	v := s.follower.view
	if f.c.opts.Figures && m.channel == f.conn.figuresChannel(s.service) {
		if got := new(measured); json.Unmarshal([]byte(m.text), got) == nil {
			v.metrics(got)
			f.touched(s, now)
		}
		return
	}
	got := new(change)
	if err := json.Unmarshal([]byte(m.text), got); err != nil {
		got = new(change) // it does not say what has changed
	}
	gaps := v.gaps
	v.event(got, now)
	f.c.metrics.gaps.Add(float64(v.gaps - gaps))
	f.touched(s, now)
}

// touched does what a view wants after an input.
func (f *follower) touched(s *followed, now time.Duration) {
	v := s.follower.view
	if at, wants := v.fetch.Due(); wants && at > now {
		f.later[s] = struct{}{}
	} else if wants && !s.follower.queued {
		s.follower.queued = true
		f.queue = append(f.queue, s)
	}
	if v.lookSoon {
		f.lookSoon(s, false)
	}
	if !v.dirty {
		return
	}
	if now < s.nextBuild() {
		f.dirty[s] = struct{}{}
		return
	}
	f.build(s, now)
}

// nextBuild returns the time from which the next list may be built.
func (s *followed) nextBuild() time.Duration {
	return s.follower.built + min(time.Duration(len(s.follower.view.instances))*buildEach, buildEvery)
}

func (f *follower) build(s *followed, now time.Duration) {
	delete(f.dirty, s)
	if l, changed := s.follower.view.build(); changed {
		s.follower.built = now
		f.c.metrics.lists.Inc()
		f.c.publish(s, l)
	}
}

// runDue does the work that is due and returns the time until the next.
func (f *follower) runDue(now time.Duration) time.Duration {
	for s := range f.dirty {
		if now >= s.nextBuild() {
			f.build(s, now)
		}
	}
	f.turnLater(now)
	if now >= f.nextTick {
		f.nextTick = now + tickEvery
		for _, s := range f.services {
			s.follower.view.tick(now)
			if s.follower.view.dirty {
				f.touched(s, now)
			}
		}
	}
	f.pump(now)
	f.turnLooks(now)
	next := f.nextTick
	if len(f.services) == 0 { // nothing to tell; the first service wakes the loop
		next = math.MaxInt64
	}
	for i := range f.tags {
		next = min(next, max(f.tags[i].due(), now+time.Millisecond))
	}
	if len(f.later) > 0 {
		next = min(next, now+buildEvery)
	}
	for s := range f.dirty {
		next = min(next, s.nextBuild())
	}
	if len(f.again) > 0 {
		next = min(next, f.againAt)
	}
	return max(next-now, 0)
}

// turnLater handles views that wait for a time.
func (f *follower) turnLater(now time.Duration) {
	for s := range f.later {
		v := s.follower.view
		if v.waiting {
			f.await(s, now)
			continue
		}
		delete(f.later, s)
		f.touched(s, now)
	}
}

// await makes the follower look at a new view if its subscription does not come, and takes the view
// from the disk if Redis does not answer.
func (f *follower) await(s *followed, now time.Duration) {
	st := &s.follower
	if age := now - st.since; age >= subscribePatience && !st.subscribed && f.conn != nil {
		st.subscribed = true // stop waiting for it
		f.lookSoon(s, true)
	}
	if now-st.since < diskPatience {
		return
	}
	delete(f.later, s)
	if f.c.disk == nil || st.restoring {
		return
	}
	st.restoring = true
	f.c.loops.Go(func() {
		var h head
		var instances []*Instance
		ok := f.c.disk.Read(s.service, func(data []byte) (err error) {
			h, instances, err = decodeSnapshot(data, s.service)
			return err
		})
		f.post(func(now time.Duration) {
			if ok && !st.removed {
				st.view.restore(h, instances)
				f.touched(s, now)
			}
		})
	})
}

// post makes the loop call result.
func (f *follower) post(result func(now time.Duration)) {
	select {
	case f.results <- result:
	case <-f.c.ctx.Done():
	}
}

// pump fetches pages.
func (f *follower) pump(now time.Duration) {
	for f.conn != nil && len(f.queue) > 0 && f.fetching < fetchesAtOnce {
		s := f.queue[0]
		f.queue = f.queue[1:]
		s.follower.queued = false
		if s.follower.removed {
			continue
		}
		if page, due := s.follower.view.want(now); due {
			f.fetching++
			f.c.loops.Go(func() { f.fetch(s, page) })
		}
	}
}

func (f *follower) fetch(s *followed, want fetch) {
	ctx, cancel := context.WithTimeout(f.c.ctx, callTimeout)
	defer cancel()
	var p page
	var err error
	if want.load {
		p, err = f.conn.load(ctx, s.service, want.cursor)
	} else {
		p, err = f.conn.changed(ctx, s.service, want.since, want.birth)
	}
	f.post(func(now time.Duration) {
		f.fetching--
		v := s.follower.view
		switch {
		case s.follower.removed:
			return
		case err != nil:
			f.outage.Failed(err, zap.String("service", s.service))
			v.fetch.Failed(want.number, now)
		case want.load:
			v.loadPage(want.number, &p, now)
		default:
			v.changesPage(want.number, &p, now)
		}
		f.touched(s, now)
	})
}

// subscribed takes the channels whose subscription is new or renewed.
func (f *follower) subscribed() {
	for channel := range f.hub.taken() {
		s := f.channels[channel]
		if s == nil {
			f.c.documents.poke(channel)
			continue
		}
		if !s.follower.subscribed {
			s.follower.subscribed = true
			f.lookSoon(s, true)
			continue
		}
		if len(f.again) == 0 {
			f.againAt = f.now() + rand.N(min(reconnectSpread, f.look)+1)
		}
		f.again[s] = struct{}{}
	}
}

// figuresChannel returns the channel of a service's metrics.
func (c *conn) figuresChannel(service string) string {
	_, k := c.of(service)
	return k.metrics(service)
}
