package registry

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// twinServer is what Redis is for one service: slow and obvious.
type twinServer struct {
	rand    *rand.Rand
	now     int64
	head    head
	history string
	// instances by id; the value is the revision, the epoch, and the override.
	instances map[string]twinRecord
	changed   map[string]int64
	floor     int64
	late      map[string]bool
}

type twinRecord struct {
	revision        int64
	epoch, override string
}

func newTwinServer(r *rand.Rand) *twinServer {
	s := &twinServer{rand: r, history: "h0"}
	s.flush()
	return s
}

func (s *twinServer) text() string { return strconv.FormatUint(s.rand.Uint64(), 36) }

func (s *twinServer) flush() {
	s.head, s.floor = head{}, 0
	s.instances, s.changed, s.late = map[string]twinRecord{}, map[string]int64{}, map[string]bool{}
}

func (s *twinServer) copy() *twinServer {
	c := *s
	c.instances, c.changed, c.late = maps.Clone(s.instances), maps.Clone(s.changed), maps.Clone(s.late)
	return &c
}

// restore goes back to an earlier state, as a failover does that lost writes.
func (s *twinServer) restore(old *twinServer) {
	now, history := s.now, s.history
	*s = *old.copy()
	s.now, s.history = now, history+"'"
}

func (s *twinServer) change(reason string, ids []string) *change {
	s.head.Revision++
	s.head.Stamp = s.text()
	if s.head.Revision == 1 {
		s.head.Birth = s.head.Stamp
	}
	s.head.Why = ""
	if len(s.instances) == 0 {
		s.head.Why = whyOf(reason)
	}
	c := &change{At: s.now, Revision: s.head.Revision, Stamp: s.head.Stamp, Birth: s.head.Birth, Reason: reason}
	for _, id := range ids {
		s.changed[id] = s.head.Revision
		if in, ok := s.instances[id]; ok {
			in.revision = s.head.Revision
			s.instances[id] = in
		}
		c.Entries = append(c.Entries, s.entry(id, s.head.Revision))
	}
	if len(s.changed) > 12 { // the oldest are dropped
		oldest := s.head.Revision
		for _, r := range s.changed {
			oldest = min(oldest, r)
		}
		maps.DeleteFunc(s.changed, func(_ string, r int64) bool { return r == oldest })
		s.floor = oldest
	}
	return c
}

func (s *twinServer) entry(id string, revision int64) entry {
	e := entry{ID: id, Revision: revision}
	if in, ok := s.instances[id]; ok {
		e.Revision, e.Override = in.revision, in.override
		e.Fields = fieldList{"host", "h", "epoch", in.epoch, "weight", "2"}
	}
	return e
}

// page answers a fetch.
func (s *twinServer) page(f fetch) page {
	p := page{head: s.head}
	if f.load {
		// The cursor is the last id. A scan has what is there all the time.
		after := f.cursor
		if after == "0" {
			after = ""
		}
		for _, id := range slices.Sorted(maps.Keys(s.instances)) {
			if id <= after {
				continue
			}
			if len(p.entries) == 3 {
				p.cursor = p.entries[2].ID
				return p
			}
			p.entries = append(p.entries, s.entry(id, 0))
		}
		p.cursor = "0"
		return p
	}
	if f.birth != s.head.Birth || f.since < s.floor || f.since > s.head.Revision {
		p.reload = true
		return p
	}
	byRevision := map[int64][]string{}
	for id, r := range s.changed {
		if r > f.since {
			byRevision[r] = append(byRevision[r], id)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(byRevision)) {
		if len(p.entries) >= 3 {
			p.more = true
			break
		}
		for _, id := range byRevision[r] {
			e := s.entry(id, r)
			e.Revision = r
			p.entries = append(p.entries, e)
		}
	}
	return p
}

func (s *twinServer) look(history bool) *looked {
	l := &looked{head: s.head, at: s.now, late: slices.Sorted(maps.Keys(s.late))}
	if history {
		l.history = s.history
	}
	return l
}

// journey is a view beside a twin, with messages and answers under way.
type journey struct {
	t       *testing.T
	r       *rand.Rand
	s       *twinServer
	old     *twinServer
	v       *view
	now     time.Duration
	events  []*change
	answers []func()
	lists   int
}

var journeyConfig = viewConfig{timeout: 30 * time.Second, look: 3 * time.Second, limit: 2 * time.Minute, spread: time.Second}

func newJourney(t *testing.T, seed uint64) *journey {
	r := rand.New(rand.NewPCG(seed, 1))
	j := &journey{t: t, r: r, s: newTwinServer(r)}
	j.old = j.s.copy()
	j.v = newView("orders", journeyConfig, 0)
	return j
}

func (j *journey) publish(c *change) {
	switch j.r.IntN(10) {
	case 0: // lost
	case 1:
		j.events = append(j.events, c, c)
	case 2:
		j.events = slices.Insert(j.events, j.r.IntN(len(j.events)+1), c)
	default:
		j.events = append(j.events, c)
	}
}

func (j *journey) someIDs() []string {
	n := 1 + j.r.IntN(3)
	out := map[string]bool{}
	for range n {
		out[fmt.Sprintf("i%02d", j.r.IntN(15))] = true
	}
	return slices.Sorted(maps.Keys(out))
}

// write changes the twin.
func (j *journey) write() {
	ids := j.someIDs()
	switch j.r.IntN(10) {
	case 0, 1, 2, 3:
		for _, id := range ids {
			in := j.s.instances[id]
			in.epoch = j.s.text()
			j.s.instances[id] = in
			delete(j.s.late, id)
		}
		j.publish(j.s.change("registered", ids))
	case 4, 5, 6:
		ids = slices.DeleteFunc(ids, func(id string) bool { _, ok := j.s.instances[id]; return !ok })
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			delete(j.s.instances, id)
			delete(j.s.late, id)
		}
		j.publish(j.s.change([]string{"deregistered", "expired", "removed_by_operator"}[j.r.IntN(3)], ids))
	case 7:
		in, ok := j.s.instances[ids[0]]
		if !ok {
			return
		}
		in.override = fmt.Sprintf(`{"weight":7,"until_ms":%d}`, j.s.now+int64(j.r.IntN(20_000)))
		j.s.instances[ids[0]] = in
		j.publish(j.s.change("override", ids[:1]))
	case 8:
		if _, ok := j.s.instances[ids[0]]; ok {
			j.s.late[ids[0]] = true
		}
	case 9:
		delete(j.s.late, ids[0])
	}
}

// step does one thing at random.
func (j *journey) step() {
	switch k := j.r.IntN(100); {
	case k < 30:
		j.write()
	case k < 55:
		if len(j.events) > 0 {
			j.v.event(j.events[0], j.now)
			j.events = j.events[1:]
		}
	case k < 65:
		j.fetch()
	case k < 80:
		if len(j.answers) > 0 {
			i := j.r.IntN(len(j.answers))
			answer := j.answers[i]
			j.answers = slices.Delete(j.answers, i, i+1)
			answer()
		}
	case k < 90:
		j.ask(j.r.IntN(5) == 0)
	case k < 96:
		j.pass(time.Duration(j.r.IntN(1500)) * time.Millisecond)
	case k < 97:
		j.old = j.s.copy()
	default:
		switch j.r.IntN(12) {
		case 0:
			j.s.flush()
		case 1:
			j.s.restore(j.old)
			j.events = nil
		case 2:
			j.s.history += "r"
		case 3:
			j.events = nil
		case 4:
			j.pass(20 * time.Second) // Redis is silent
		case 5:
			j.v.event(new(change), j.now) // of the first version
		case 6:
			j.v.lookFailed()
		}
	}
	j.check()
}

func (j *journey) pass(d time.Duration) {
	j.now += d
	j.s.now += d.Milliseconds()
	j.v.tick(j.now)
}

// fetch sends what the view wants. The answer is what the server has then, or soon after.
func (j *journey) fetch() {
	f, due := j.v.want(j.now)
	if !due {
		return
	}
	answered := j.s.page(f)
	j.answers = append(j.answers, func() {
		switch {
		case j.r.IntN(10) == 0:
			j.v.fetch.Failed(f.number, j.now)
		case f.load:
			j.v.loadPage(f.number, &answered, j.now)
		default:
			j.v.changesPage(f.number, &answered, j.now)
		}
	})
}

func (j *journey) ask(history bool) {
	a := j.v.ask()
	l := j.s.look(history || a.history)
	j.answers = append(j.answers, func() { j.v.looked(a, l, j.now) })
}

// check looks at what is given out.
func (j *journey) check() *List {
	l, changed := j.v.build()
	if l == nil {
		return nil
	}
	if changed {
		j.lists++
	}
	if (len(l.Instances) == 0) != (l.State == StateEmpty) || l.State == StateEmpty && l.Why == "" {
		j.t.Fatalf("%d instances, %s %q", len(l.Instances), l.State, l.Why)
	}
	if !slices.IsSortedFunc(l.Instances, func(a, b *Instance) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	}) {
		j.t.Fatalf("not sorted: %s", describe(l))
	}
	return l
}

// rest lets all arrive, and looks until nothing is wanted. Now and then all looks but the last one
// are slow.
func (j *journey) rest() *List {
	slow := j.r.IntN(4) == 0
	for round := range 25 {
		for len(j.events) > 0 {
			j.v.event(j.events[0], j.now)
			j.events = j.events[1:]
		}
		j.ask(true)
		for range 20 {
			j.fetch()
			for len(j.answers) > 0 {
				answer := j.answers[0]
				j.answers = j.answers[1:]
				answer()
			}
			j.pass(100 * time.Millisecond)
		}
		for range 40 {
			if slow && round < 24 {
				j.pass(250 * time.Millisecond)
			}
		}
	}
	return j.check()
}

// equal compares a list with the twin.
func (j *journey) equal(l *List) {
	var unconfirmed int
	got := map[string]*Instance{}
	for _, in := range l.Instances {
		if in.Unconfirmed {
			unconfirmed++
			if _, there := j.s.instances[in.ID]; there {
				j.t.Fatalf("%s is unconfirmed, and Redis has it", in.ID)
			}
			continue
		}
		got[in.ID] = in
	}
	if len(got) != len(j.s.instances) || l.Revision != j.s.head.Revision {
		j.t.Fatalf("list is %s of revision %d, Redis has %v of %d", describe(l), l.Revision, slices.Sorted(maps.Keys(j.s.instances)), j.s.head.Revision)
	}
	for id, want := range j.s.instances {
		in := got[id]
		if in == nil || in.Epoch != want.epoch || in.Revision != want.revision || in.Late != j.s.late[id] {
			j.t.Fatalf("%s is %+v, expected %+v, late %t", id, in, want, j.s.late[id])
		}
		weight := 2.0
		if in.Override != nil && in.Override.UntilMS > j.s.now-1000 {
			weight = 7
		}
		if in.Weight != weight && in.Override != nil && in.Override.UntilMS < j.s.now {
			j.t.Fatalf("weight of %s is %v at %d: %+v", id, in.Weight, j.s.now, in.Override)
		}
	}
	want := StateLive
	switch {
	case len(l.Instances) == 0:
		want = StateEmpty
	case unconfirmed > 0:
		want = StateRebuilding
	}
	if l.State != want {
		j.t.Fatalf("state is %s, expected %s", l.State, want)
	}
	if l.State == StateEmpty && j.s.head.Why != "" && l.Why != j.s.head.Why {
		j.t.Fatalf("empty because %s, expected %s", l.Why, j.s.head.Why)
	}
}

// TestViewTwin: whatever is lost, doubled, reordered, flushed or restarted, at rest the list is
// Redis' record, with a reason, and what Redis has lost is gone after the limit.
func TestViewTwin(t *testing.T) {
	t.Parallel()
	seeds := 600
	if testing.Short() {
		seeds = 200
	}
	for seed := range uint64(seeds) {
		ok := t.Run("", func(t *testing.T) {
			j := newJourney(t, seed)
			for range 4 {
				for range 150 {
					j.step()
				}
				j.equal(j.rest())
			}
			for range 4 {
				j.rest()
			}
			l := j.rest()
			j.equal(l)
			for _, in := range l.Instances {
				if in.Unconfirmed {
					t.Fatalf("%s is there after the limit", in.ID)
				}
			}
		})
		if !ok {
			t.Fatalf("seed %d", seed)
		}
	}
}

// lateJourney is a view of one instance, "a", that is loaded and has been dead for long.
type lateJourney struct{ *journey }

func newLateJourney(t *testing.T) lateJourney {
	j := newJourney(t, 1)
	j.s.instances["a"] = twinRecord{epoch: "e"}
	j.s.change("registered", []string{"a"})
	j.rest()
	return lateJourney{j}
}

// looks makes n looks, each an interval after the one before.
func (j lateJourney) looks(n int, every time.Duration) {
	for range n {
		for end := j.now + every; j.now < end; {
			j.pass(min(tickEvery, end-j.now))
		}
		a := j.v.ask()
		j.v.looked(a, j.s.look(false), j.now)
		j.fetch()
		for _, answer := range j.answers {
			answer()
		}
		j.answers = nil
	}
}

func (j lateJourney) is(late bool) {
	j.t.Helper()
	if l := j.check(); l.Instances[0].Late != late {
		j.t.Fatalf("at %s late is %t, expected %t", j.now, !late, late)
	}
}

// Answers that are merely slow do not put lateness off for ever, also when each brings a second
// answer.
func TestViewLateWithSlowLooks(t *testing.T) {
	t.Parallel()
	j := newLateJourney(t)
	j.s.late["a"] = true
	j.looks(1, 12*time.Second)
	j.is(false)
	for range 3 { // each look finds a change, which is fetched at once
		j.s.change("updated", []string{"a"})
		j.looks(1, 12*time.Second)
	}
	j.is(true)
}

// After each outage lateness counts anew.
func TestViewLateAfterOutages(t *testing.T) {
	t.Parallel()
	j := newLateJourney(t)
	outage := func(back int) {
		t.Helper()
		j.s.late["a"] = true
		j.v.lookFailed()
		j.looks(1, time.Minute)
		j.is(false)
		j.looks(back, 3*time.Second)
		j.is(back > 9)
		delete(j.s.late, "a")
		j.looks(1, 3*time.Second)
	}
	outage(11)
	outage(11)
	outage(1) // the next one comes before answers are regular again
	outage(11)
}

// TestViewFetchesAfterOutage: a fetch that waits because Redis was away is made when it is back.
func TestViewFetchesAfterOutage(t *testing.T) {
	t.Parallel()
	v := newView("shop", viewConfig{timeout: time.Minute, look: time.Second}, 0)
	v.looked(v.ask(), &looked{}, 0)
	now := time.Duration(0)
	for range 10 {
		now, _ = v.fetch.Due()
		f, due := v.want(now)
		if !due {
			t.Fatal("no fetch is due")
		}
		v.fetch.Failed(f.number, now)
	}
	now += time.Second
	v.looked(v.ask(), &looked{}, now)
	if at, _ := v.fetch.Due(); at <= now {
		t.Errorf("due at %s, expected later than %s: no look has failed", at, now)
	}
	v.lookFailed()
	v.looked(v.ask(), &looked{}, now)
	if at, due := v.fetch.Due(); !due || at > now {
		t.Errorf("due at %s, expected %s", at, now)
	}
}
