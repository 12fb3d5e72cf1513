package registry

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The times of histories: sums of steps, which are multiples of 10 s, are more than a second away
// from all that is compared with them.
const (
	modelLimit    = 124 * time.Second
	modelEvery    = 25 * time.Second
	modelInterval = 9 * time.Second
)

// TestHistories: after each call of a random history the answers and what is in Redis are as the
// twin has them.
func TestHistories(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for i := range 12 {
			seed := rand.Uint64()
			service := "s" + strconv.Itoa(i)
			t.Run(service, func(t *testing.T) {
				t.Parallel()
				on := *r
				on.t = t
				m := &model{rig: &on, service: service, twin: newTwin(), rand: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // histories are no secrets
				for step := range 250 {
					what := m.step()
					if diff := cmp.Diff(m.twin.shown(), m.shown()); diff != "" || t.Failed() {
						t.Fatalf("seed %d, step %d, after %s: %s", seed, step, what, diff)
					}
				}
			})
		}
	})
}

type model struct {
	*rig
	service string
	twin    *twin
	rand    *rand.Rand
}

func pick[T any](m *model, of ...T) T { return of[m.rand.IntN(len(of))] }

func (m *model) step() (what string) {
	w := m.twin
	w.at = m.now(m.service)
	if w.revision == 1 && m.record(m.service)["limit"] == "" {
		m.do("HSET", m.keys(m.service).record(m.service), "limit", milliseconds(modelLimit), "every", milliseconds(modelEvery))
	}
	id, epoch := pick(m, "a", "b", "c", "d", "e", "f"), pick(m, "e1", "e1", "e2", "e3", copyEpoch)
	var got, want any
	switch m.rand.IntN(16) {
	case 0, 1, 2, 3:
		// e1 and e2 are on one host, e3 on another.
		host := "10.0.0.1"
		if epoch == "e3" {
			host = "10.0.0.3"
		}
		replaces, since := pick(m, "", "e1", "e2", "e3", copyEpoch), int64(0)
		if i := w.instances[id]; i != nil && m.rand.IntN(2) == 0 {
			replaces, since = i.epoch, pick(m, int64(0), i.registered+60_000) // the twin's times are a little early
		}
		reg := registration(m.service, id, func(x *Registration) {
			x.Host, x.Weight, x.Interval = host, new(float64(1+m.rand.IntN(2))), modelInterval
			if x.Persistent = id == "f"; x.Persistent {
				x.Check = &Check{Kind: "tcp"}
			}
		})
		interval := modelInterval.Milliseconds()
		if reg.Persistent {
			interval = 0
		}
		_, content := reg.fields()
		what = fmt.Sprintf("register %s %s for %s at %s, %s", id, epoch, replaces, host, content)
		one := item(epoch, replaces, reg)
		one.since = since
		a, err := m.register(bounded(m.t), m.service, false, []registerItem{one})
		if err != nil {
			m.t.Fatal(err)
		}
		got, want = a[0].code, w.register(id, epoch, replaces, host, content, since, interval)
	case 4, 5, 6:
		what = "heartbeat " + epoch
		var items []beatItem
		var codes []int
		for _, id := range []string{"a", "b", "c", "d", "e", "f"}[:1+m.rand.IntN(6)] {
			content := "other"
			if i := w.instances[id]; i != nil && m.rand.IntN(3) > 0 {
				content = i.content
			}
			items = append(items, beatItem{id, epoch, content, pick(m, "", `{"cpu":{"usage":1}}`)})
			codes = append(codes, w.heartbeat(id, epoch, content))
		}
		answers, err := m.heartbeat(bounded(m.t), m.service, false, items)
		if err != nil {
			m.t.Fatal(err)
		}
		var has []int
		for _, a := range answers {
			has = append(has, a.code)
		}
		got, want = has, codes
	case 7:
		what = "deregister " + id + " " + epoch
		got, want = m.remove(m.service, reasonDeregistered, deregisterItem{id, epoch})[0].code, w.deregister(id, epoch)
	case 8:
		passing, why := m.rand.IntN(2) == 0, pick(m, "refused", "timeout")
		what = fmt.Sprintf("verdict for %s %s: %t", id, epoch, passing)
		code, err := m.verdict(bounded(m.t), m.service, id, epoch, passing, why)
		if err != nil {
			m.t.Fatal(err)
		}
		got, want = code, w.verdict(id, epoch, passing, why)
	case 9:
		o, lasts := pick(m, nil, &Override{Author: "eve"}, &Override{Author: "bob"}), pick(m, 0, 95*time.Second)
		what = fmt.Sprintf("override %s: %v for %s", id, o, lasts)
		a, err := m.override(bounded(m.t), m.service, id, o, lasts, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		got, want = a.code, w.override(id, o, lasts)
	case 10, 11, 12:
		what = "cleanup"
		limit, every := modelLimit, modelEvery
		if w.revision == 0 {
			limit, every = DefaultLimit, DefaultCleanupEvery
		}
		done, err := m.cleanup(bounded(m.t), m.service)
		if err != nil {
			m.t.Fatal(err)
		}
		removed, guarded := w.cleanup(limit.Milliseconds(), every.Milliseconds())
		got, want = fmt.Sprint(done.removed, done.guard != ""), fmt.Sprint(removed, guarded)
	default:
		d := pick(m, 10*time.Second, 30*time.Second, 30*time.Second, 30*time.Second, 130*time.Second, -20*time.Second, -70*time.Second)
		if m.rand.IntN(40) == 0 {
			d = 4 * 24 * time.Hour
		}
		what = "pass " + d.String()
		m.pass(m.service, d)
		w.pass(d)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Errorf(`%s: %s; want diff == ""`, what, diff)
	}
	return what
}

// state is what is compared. The twin reads the clock before the script does.
type state struct {
	Instances map[string]string
	Overrides map[string]string
	Changes   map[string]int64
	Beats     map[string]int64
	Revision  int64
	Why       string
	Guard     [3]int64
	Listed    bool
}

func (w *twin) shown() *state {
	s := &state{
		Instances: make(map[string]string), Overrides: make(map[string]string), Changes: w.changes, Beats: make(map[string]int64), Revision: w.revision, Why: w.why,
		Guard: [3]int64{w.guardUntil, w.guardCut, w.guardDone}, Listed: len(w.instances) > 0,
	}
	for id, i := range w.instances {
		s.Instances[id] = fmt.Sprint(i.epoch, i.content, i.host, i.revision, i.checked, i.checkedWhy, i.failingSince != 0, i.checkedAt != 0)
		s.Beats[id] = i.beat
		if i.interval == 0 {
			s.Beats[id] = -1
		}
	}
	for id, o := range w.overrides {
		s.Overrides[id] = fmt.Sprint(o.Author, o.UntilMS != 0, o.GoneMS != 0)
	}
	return s
}

// shown is the same of Redis, with the twin's times where they are near enough.
func (m *model) shown() *state {
	k, w, record := m.keys(m.service), m.twin, m.record(m.service)
	number := func(text string) int64 {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	near := func(is, should int64) int64 {
		if is != 0 && should != 0 && is-should >= 0 && is-should < 3000 {
			return should
		}
		return is
	}
	s := &state{
		Instances: make(map[string]string), Overrides: make(map[string]string), Changes: m.scores(k.changes(m.service)), Beats: m.beats(m.service),
		Revision: number(record["revision"]), Why: record["why"],
		Guard: [3]int64{
			near(number(record["guard_until"]), w.guardUntil), near(number(record["guard_cut"]), w.guardCut), near(number(record["guard_done"]), w.guardDone),
		},
		Listed: m.listed(m.service),
	}
	for id, at := range s.Beats {
		h := m.instance(m.service, id)
		s.Instances[id] = fmt.Sprint(h["epoch"], h["content"], h["host"], number(h["revision"]), h["checked"], h["checked_why"], h["failing_since"] != "", h["checked_at"] != "")
		if i := w.instances[id]; i != nil {
			s.Beats[id] = near(at, i.beat)
		}
	}
	for id, text := range m.hash(k.overrides(m.service)) {
		var o Override
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			m.t.Fatal(err)
		}
		s.Overrides[id] = fmt.Sprint(o.Author, o.UntilMS != 0, o.GoneMS != 0)
	}
	return s
}
