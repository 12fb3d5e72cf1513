package namelist

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// twin is a control server with one list, as a slow and obvious model.
type twin struct {
	history, births int
	head            lists.Head
	edits           []lists.Edit
	versions        map[int64]*twinVersion
	events          []lists.Event // not delivered yet
	at              int64
	// oracle is what ids each build has at each revision, in all histories that there were.
	oracle map[string][]map[string]bool
}

type twinVersion struct {
	lists.Version
	ids map[string]bool
}

func newTwin() *twin {
	return &twin{history: 1, versions: make(map[int64]*twinVersion), oracle: make(map[string][]map[string]bool)}
}

func (s *twin) exists() bool { return s.head.Birth != "" && s.head.State != lists.Deleted }

func key(build string, revision int64) string { return fmt.Sprint(build, " ", revision) }

// content is what a version has with the edits up to now.
func (s *twin) content(v *twinVersion) map[string]bool {
	out := maps.Clone(v.ids)
	for _, e := range s.edits {
		if e.Revision > v.Base {
			for _, c := range e.Changes {
				delete(out, c.ID)
				if !c.Remove {
					out[c.ID] = true
				}
			}
		}
	}
	return out
}

// step takes a revision, with the head or entries in its event.
func (s *twin) step(changes []lists.Change, large bool) {
	s.head.Revision++
	s.at++
	s.head.At = time.UnixMilli(s.at)
	e := lists.Event{Revision: s.head.Revision, At: s.head.At, Birth: s.head.Birth, History: fmt.Sprint(s.history)}
	if changes == nil {
		h := s.head
		e.Head = &h
	} else {
		s.edits = append(s.edits, lists.Edit{Revision: s.head.Revision, Changes: changes})
		if !large {
			e.Changes = changes
		}
	}
	s.events = append(s.events, e)
	s.note()
}

func (s *twin) note() {
	for _, v := range s.versions {
		at := key(v.Build, s.head.Revision)
		s.oracle[at] = append(s.oracle[at], s.content(v))
	}
}

func (s *twin) delta(after int64) lists.Delta {
	d := lists.Delta{Head: s.head, History: fmt.Sprint(s.history)}
	d.Head.At = time.UnixMilli(s.at)
	if !s.exists() {
		return d
	}
	for _, e := range s.edits {
		if e.Revision > after {
			if len(d.Edits) == 2 {
				d.More = true
				break
			}
			d.Edits = append(d.Edits, e)
		}
	}
	return d
}

func (s *twin) mark() (m lists.Mark) {
	if s.exists() {
		m = lists.Mark{Revision: s.head.Revision, Birth: s.head.Birth}
	}
	return m
}

// saved is a backup of a twin.
func (s *twin) saved() *twin {
	out := *s
	out.edits, out.versions, out.events = append([]lists.Edit(nil), s.edits...), maps.Clone(s.versions), nil
	return &out
}

var universe = []string{"a", "b", "c", "d", "e"}

// shows are the ids that a view's snapshot has, by its edits and the version's own ids.
func shows(v *view, of *twinVersion) map[string]bool {
	out := make(map[string]bool)
	for _, id := range universe {
		c, edited := v.shown.edits.get(form.Sum(v.shown.head.Seed, id), id, v.shown.version.version.Base)
		if edited && c.expires != removed || !edited && of.ids[id] {
			out[id] = true
		}
	}
	return out
}

// What a view shows is what the list had at that version and revision, whatever comes late, twice,
// in another order or not at all; and once all was delivered it shows the newest.
func TestViewModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, now := newTwin(), time.Second
		v := newView("vip", now)
		all := make(map[string]*twinVersion) // by build
		var backup *twin
		var answers []func() // of fetches and looks that are under way
		var builds int
		check := func() {
			if v.shown.why != ReasonNone {
				return
			}
			of := all[v.shown.version.version.Build]
			got, want := shows(v, of), s.oracle[key(of.Build, v.shown.revision)]
			if !slices.ContainsFunc(want, func(one map[string]bool) bool { return maps.Equal(one, got) }) {
				t.Fatalf("version %d, revision %d: %v, want %v", of.Number, v.shown.revision, got, want)
			}
		}
		build := func(ids map[string]bool) *twinVersion {
			builds++
			s.head.Number++
			b := &twinVersion{Version: lists.Version{
				Number: s.head.Number, Build: fmt.Sprintf("%032d", builds), Segments: 1, Base: s.head.Revision, Filter: filter.None,
			}, ids: ids}
			s.versions[b.Number], all[b.Build] = b, b
			s.note()
			return b
		}
		fetch := func() bool {
			want, due := v.want(now)
			if !due {
				return false
			}
			d, sent := s.delta(want.after), now
			answers = append(answers, func() { v.delta(want.number, &d, sent, now) })
			return true
		}
		look := func() {
			a, m, h, at, sent := v.ask(), s.mark(), fmt.Sprint(s.history), time.UnixMilli(s.at), now
			answers = append(answers, func() { v.looked(a, m, h, at, sent, now) })
		}
		answer := func(i int) {
			next := answers[i]
			answers = append(answers[:i:i], answers[i+1:]...)
			next()
		}
		draw := func(t *rapid.T) map[string]bool {
			ids := make(map[string]bool)
			for _, id := range rapid.SliceOfDistinct(rapid.SampledFrom(universe), rapid.ID).Draw(t, "ids") {
				ids[id] = true
			}
			return ids
		}
		target := func(t *rapid.T) *lists.Version {
			if !s.exists() || len(s.versions) == 0 {
				t.Skip("no version")
			}
			v := s.versions[rapid.Int64Range(1, s.head.Number).Draw(t, "version")]
			if v == nil {
				t.Skip("no such version")
			}
			return &v.Version
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				if s.exists() {
					t.Skip("it exists")
				}
				s.births++
				number := s.head.Number
				s.edits, s.versions = nil, make(map[int64]*twinVersion)
				s.head = lists.Head{
					Name: "vip", Birth: fmt.Sprint(s.births), Form: form.Exact, Seed: uint64(s.births), State: lists.Draft,
					Number: number, Revision: s.head.Revision,
				}
				s.step(nil, false)
			},
			"edit": func(t *rapid.T) {
				if !s.exists() {
					t.Skip("no list")
				}
				for range rapid.IntRange(1, 4).Draw(t, "edits") {
					var changes []lists.Change
					for id := range draw(t) {
						changes = append(changes, lists.Change{Entry: lists.Entry{ID: id}, Remove: rapid.Bool().Draw(t, "remove")})
					}
					if len(changes) > 0 {
						s.step(changes, rapid.IntRange(0, 4).Draw(t, "large") == 0)
					}
				}
			},
			"import": func(t *rapid.T) {
				if s.exists() {
					build(draw(t))
					s.step(nil, false)
				}
			},
			"compact": func(t *rapid.T) {
				if !s.exists() || s.head.Serving == nil {
					t.Skip("nothing serves")
				}
				build(s.content(s.versions[s.head.Serving.Number]))
				s.step(nil, false)
			},
			"prepare": func(t *rapid.T) { s.head.Next = target(t); s.step(nil, false) },
			"switch": func(t *rapid.T) {
				s.head.Serving, s.head.Next, s.head.State = target(t), nil, lists.Active
				s.step(nil, false)
			},
			"delete": func(t *rapid.T) {
				if !s.exists() || rapid.IntRange(0, 3).Draw(t, "really") > 0 {
					t.Skip("not this time")
				}
				s.head = lists.Head{Name: "vip", Birth: s.head.Birth, State: lists.Deleted, Revision: s.head.Revision, Number: s.head.Number}
				s.step(nil, false)
			},
			"backup": func(*rapid.T) { backup = s.saved() },
			"restore": func(t *rapid.T) { // as a failover
				if backup == nil || !s.exists() || s.head.Birth != backup.head.Birth {
					t.Skip("no backup")
				}
				history := s.history + 1
				births, at, late := s.births, s.at, s.events
				*s = *backup.saved()
				s.history, s.births, s.at, s.events, backup = history, births, at, late, nil
				s.note()
			},
			"event": func(t *rapid.T) {
				if len(s.events) == 0 {
					t.Skip("none")
				}
				i := rapid.IntRange(0, min(2, len(s.events)-1)).Draw(t, "event")
				e := s.events[i]
				if rapid.IntRange(0, 3).Draw(t, "again") > 0 {
					s.events = append(s.events[:i:i], s.events[i+1:]...)
				}
				if rapid.IntRange(0, 5).Draw(t, "lost") > 0 {
					v.event(&e, now)
				}
			},
			"fetch": func(*rapid.T) { fetch() },
			"fail": func(*rapid.T) {
				if f, due := v.want(now); due {
					v.fetch.Failed(f.number, now)
				}
			},
			"look": func(*rapid.T) { look() },
			"answer": func(t *rapid.T) {
				if len(answers) == 0 {
					t.Skip("none")
				}
				answer(rapid.IntRange(0, len(answers)-1).Draw(t, "which"))
			},
			"time": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond
				v.tick(now)
			},
			"": func(*rapid.T) { check() },
		})

		for i := range s.events {
			v.event(&s.events[i], now)
			check()
		}
		for range 100 {
			now += time.Second
			for fetch(); len(answers) > 0; fetch() {
				answer(0)
				check()
			}
			look()
			answer(0)
			check()
		}
		switch got := v.shown; {
		case s.head.Birth == "":
			if got.why != ReasonListUnknown {
				t.Fatalf("no list: %s", got.why)
			}
		case !s.exists():
			if got.why != ReasonDeleted && got.why != ReasonListUnknown { // it may have come and gone unheard
				t.Fatalf("deleted: %s", got.why)
			}
		case s.head.Serving == nil:
			if got.why != ReasonDraft {
				t.Fatalf("draft: %s", got.why)
			}
		case got.why != ReasonNone || got.version.version.Number != s.head.Serving.Number || got.revision != s.head.Revision:
			t.Fatalf("shows %s, %+v at %d, want version %d at %d (following %t, since %d)", got.why, got.version, got.revision, s.head.Serving.Number, s.head.Revision, v.fetch.Idle(), v.since)
		default:
			if want := s.content(s.versions[s.head.Serving.Number]); !maps.Equal(shows(v, s.versions[s.head.Serving.Number]), want) {
				t.Fatalf("shows %v, want %v", shows(v, s.versions[s.head.Serving.Number]), want)
			}
		}
	})
}

// After a failover that lost edits, an event with the next revision is no edit of what is shown.
func TestViewOtherHistory(t *testing.T) {
	t.Parallel()
	s := newTwin()
	s.head = lists.Head{Name: "vip", Birth: "1", Form: form.Exact, State: lists.Active}
	s.head.Serving = &lists.Version{Number: 1, Build: strings.Repeat("0", 32), Segments: 1}
	s.step(nil, false)
	before := s.saved()
	edit := func(id string) lists.Event {
		s.step([]lists.Change{{Entry: lists.Entry{ID: id}}}, false)
		return s.events[len(s.events)-1]
	}
	lost := edit("a")
	v := newView("vip", time.Second)
	fetch := func(now time.Duration) {
		for want, due := v.want(now); due; want, due = v.want(now) {
			d := s.delta(want.after)
			v.delta(want.number, &d, now, now)
		}
	}
	fetch(time.Second)
	*s = *before
	s.history = 2
	edit("b")
	next := edit("c")
	if next.Revision != lost.Revision+1 {
		t.Fatalf("revision %d after %d", next.Revision, lost.Revision)
	}
	has := func(want ...string) {
		t.Helper()
		got := slices.Sorted(maps.Keys(shows(v, &twinVersion{})))
		if !slices.Equal(got, want) {
			t.Errorf("revision %d has %v, want %v", v.shown.revision, got, want)
		}
	}
	v.event(&next, time.Second)
	has("a") // as it was
	fetch(time.Minute)
	has("b", "c")
	v.event(&lost, time.Minute)
	fetch(2 * time.Minute)
	has("b", "c")
}

// A head that is gone without a tombstone is a fault of the control server: what is loaded stays,
// and is stale.
func TestViewMissingHead(t *testing.T) {
	t.Parallel()
	s := newTwin()
	s.head = lists.Head{Name: "vip", Birth: "1", Form: form.Exact, State: lists.Active}
	s.head.Serving = &lists.Version{Number: 1, Build: strings.Repeat("0", 32), Segments: 1}
	s.step(nil, false)
	now := time.Second
	v := newView("vip", now)
	step := func() {
		for want, due := v.want(now); due; want, due = v.want(now) {
			d := s.delta(want.after)
			v.delta(want.number, &d, now, now)
		}
		v.looked(v.ask(), s.mark(), fmt.Sprint(s.history), time.UnixMilli(s.at), now, now)
	}
	step()
	if v.shown.why != ReasonNone || v.silent(now) {
		t.Fatalf("shown: %+v", v.shown)
	}
	there := s.head
	s.head, s.history = lists.Head{Name: "vip"}, 2
	for range 10 {
		now += time.Second
		step()
	}
	if v.shown.why != ReasonNone || !v.silent(now) {
		t.Fatalf("without a head: %+v", v.shown)
	}
	s.head = there
	for range 3 {
		now += 2 * time.Second
		step()
	}
	if v.shown.why != ReasonNone || v.silent(now) {
		t.Fatalf("with the head again: %+v", v.shown)
	}
}
