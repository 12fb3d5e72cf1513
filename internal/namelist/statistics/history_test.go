package statistics

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/namelist/count"
)

var begin = time.Date(2027, 3, 1, 22, 58, 30, 0, time.UTC)

func counts(hits, misses, unknown uint64) (c count.Counts) {
	c[count.RedisYes], c[count.FilterNo], c[count.Unknowns+5] = hits, misses, unknown
	return c
}

// stored is the hash of a history, as Redis has it.
type stored map[string]string

func (s stored) add(tb testing.TB, at time.Time, by map[string]count.Counts) *History {
	tb.Helper()
	h := Decode("vip", s)
	h.Add(at, by)
	set, drop := h.Changes()
	maps.Copy(s, set)
	for _, field := range drop {
		delete(s, field)
	}
	return h
}

func (s stored) bytes() (n int) {
	for field, text := range s {
		n += len(field) + len(text)
	}
	return n
}

// twin keeps all that was added, and sums it up one by one.
type twin []added

type added struct {
	at time.Time
	by map[string]count.Counts
}

func (w twin) total(since time.Time, step time.Duration, name string) (c count.Counts) {
	for _, a := range w {
		for application, n := range a.by {
			if a.at.Truncate(step).Add(step).After(since) && (name == "" || name == application) {
				c.Add(&n)
			}
		}
	}
	return c
}

// TestHistoryAgainstTwin: whatever is added when, sums are those of all additions in that time.
func TestHistoryAgainstTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, now := stored{}, begin
		var w twin
		var h *History
		for range rapid.IntRange(1, 40).Draw(t, "additions") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3*60*60).Draw(t, "seconds")) * time.Second)
			by := make(map[string]count.Counts)
			for range rapid.IntRange(1, 3).Draw(t, "applications") {
				by[rapid.SampledFrom([]string{"acme/web", "acme", "other/x", Other}).Draw(t, "name")] = counts(
					rapid.Uint64Range(0, 1<<40).Draw(t, "hits"), rapid.Uint64Range(0, 300).Draw(t, "misses"),
					rapid.Uint64Range(0, 1).Draw(t, "unknown"),
				)
			}
			d := Decode("vip", s)
			d.Add(now, by)
			set, drop := d.Changes()
			maps.Copy(s, set)
			for _, field := range drop {
				delete(s, field)
			}
			w, h = append(w, added{now, by}), d
		}
		since := now.Add(-time.Duration(rapid.IntRange(0, 23*60).Draw(t, "since")) * time.Minute)
		for _, step := range []time.Duration{time.Minute, time.Hour} {
			for _, name := range []string{"", "acme/web", "other/x"} {
				got, want := h.Summary(since, step, name), w.total(since, step, name)
				if got.Total != want {
					t.Fatalf("since %s by %s, application %q: %v; want %v", since, step, name, got.Total, want)
				}
				var points count.Counts
				for _, p := range got.Points {
					points.Add(&p.Counts)
				}
				if points != want {
					t.Fatalf("since %s by %s the points have %v; want %v", since, step, points, want)
				}
			}
		}
	})
}

// A busy list of many applications stays within its bytes for 90 days, and keeps its totals.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	s, names := stored{}, make([]string, MaxApplications+20)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d/application-%d", i%7, i)
	}
	var total count.Counts
	var h *History
	most := 0
	const lastDay, since = 90 * day, 24 * day
	for at := time.Duration(0); at < lastDay+day; {
		by := make(map[string]count.Counts)
		for range 4 {
			var c count.Counts
			for i := range c {
				c[i] = r.Uint64N(1 << r.UintN(30))
			}
			c[count.Hits], c[count.Misses], c[count.Unknown] = 0, 0, 0
			by[names[r.IntN(len(names))]] = c
		}
		h = s.add(t, begin.Add(at), by)
		if most = max(most, s.bytes()); most > MaxBytes {
			t.Fatalf("after %s the history has %d bytes; want at most %d", at, most, MaxBytes)
		}
		for _, c := range by {
			if at >= since {
				total.Add(&c)
			}
		}
		if at < lastDay {
			at += 3 * time.Hour
		} else {
			at += 6 * time.Minute
		}
	}
	end := begin.Add(lastDay + day)
	got := h.Summary(begin.Add(since), time.Hour, "").Total
	if got, want := got.Plain(), total.Plain(); got != want {
		t.Errorf("of 67 days there are %v; want %v", got, want)
	}
	minutes := h.Summary(end.Add(-MinutesKept), time.Minute, "")
	if len(minutes.Points) != 4*60 || most < MaxBytes*9/10 {
		t.Errorf("%d minutes, at most %d bytes; want %d of a full history", len(minutes.Points), most, 4*60)
	}
}

// Applications beyond the bound are others, and get a place once others have gone.
func TestApplicationsAreBounded(t *testing.T) {
	t.Parallel()
	s := stored{}
	for i := range MaxApplications + 2 {
		s.add(t, begin, map[string]count.Counts{fmt.Sprint("a", i): counts(1, 0, 0)})
	}
	h := s.add(t, begin.Add(HoursKept+2*day), map[string]count.Counts{"late": counts(5, 0, 0)})
	all := h.Summary(begin.Add(HoursKept), time.Hour, "").Applications
	if c := all["late"]; len(all) != 1 || c[count.RedisYes] != 5 {
		t.Errorf("applications at the end: %v; want late alone", all)
	}
	s = stored{}
	for i := range MaxApplications + 2 {
		h = s.add(t, begin, map[string]count.Counts{fmt.Sprint("a", i): counts(1, 0, 0)})
	}
	all = h.Summary(begin.Add(-day), time.Hour, "").Applications
	if c := all[Other]; len(all) != MaxApplications+1 || c[count.RedisYes] != 2 {
		t.Errorf("%d applications, %d lookups of others; want %d and 2", len(all), c[count.RedisYes], MaxApplications+1)
	}
}

func FuzzDecodeChunk(f *testing.F) {
	f.Add(encodeChunk(whole, map[place]count.Counts{{3, 1}: counts(1, 2, 3), {3, other}: counts(1<<60, 0, 0)}))
	f.Add("\x00\x3c\x00\x00")
	f.Fuzz(func(t *testing.T, text string) {
		cells, err := decodeChunk(text)
		if err != nil {
			return
		}
		again, err := decodeChunk(encodeChunk(whole, cells))
		if err != nil || !maps.Equal(cells, again) {
			t.Errorf("%v, and again %v, %v; want the same", cells, again, err)
		}
	})
}
