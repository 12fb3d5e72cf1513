package history

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// epoch is when tests begin, at the beginning of a minute.
const epoch = int64(1_764_000_000_000) / 60_000 * 60_000

// twin computes a table from all reports at once, slowly.
type twin struct {
	now []int64
	all [][]Report

	parts                 []part
	covered, seen, parted [][2]int64
}

// part is a difference that counts.
type part struct {
	from, to int64
	diff     map[int]float64 // by sum
}

// sum finds the differences of counters and of ends, and how much of the time was not known before
// each of them.
func (w *twin) sum() {
	var parts []part
	var covered, seen, parted [][2]int64
	last, coveredTo, seenTo := map[string]known{}, int64(0), int64(0)
	for i := range w.now {
		current, here := map[string]known{}, []part(nil)
		source := ""
		for _, r := range w.all[i] {
			f, err := Decode(r.Figures)
			if err != nil {
				continue
			}
			current[r.Replica] = known{at: r.AtMS, figures: f}
			source = better(source, current[source].figures, r.Replica, f)
		}
		for name, k := range current {
			b, there := last[name]
			if !there || b.figures.StartMS != k.figures.StartMS || k.at <= b.at || k.at-b.at > 10_000 {
				continue
			}
			p := part{b.at, k.at, map[int]float64{}}
			for j := range counters {
				p.diff[j] = float64(k.figures.Counters[j] - b.figures.Counters[j])
			}
			for h := range histograms {
				for j := range buckets {
					p.diff[histogramsAt+h*buckets+j] = float64(k.figures.Histograms[h][j] - b.figures.Histograms[h][j])
				}
			}
			here = append(here, p)
			if from := max(b.at, seenTo); name == source && from < k.at && b.figures.Cells > 0 {
				diff := map[int]float64{}
				for i := range ends {
					if states := k.figures.States && b.figures.States; i == Ended || states {
						diff[endsAt+i] = float64(k.figures.Ends[i]-b.figures.Ends[i]) * float64(k.at-from) / float64(k.at-b.at)
					}
				}
				parts = append(parts, part{from, k.at, diff})
				seen, seenTo = append(seen, [2]int64{from, k.at}), k.at
				if len(diff) > 1 {
					parted = append(parted, [2]int64{from, k.at})
				}
			}
		}
		slices.SortFunc(here, func(a, b part) int { return int(a.from - b.from) })
		for _, p := range here {
			if from := max(p.from, coveredTo); from < p.to {
				covered, coveredTo = append(covered, [2]int64{from, p.to}), p.to
			}
		}
		parts, last = append(parts, here...), current
	}
	w.parts, w.covered, w.seen, w.parted = parts, covered, seen, parted
}

// better returns the name of the figures that tell more, in the order of the names where both tell
// the same; "" while none tells anything.
func better(name string, f Figures, other string, g Figures) string {
	score := func(f Figures) int {
		n := 2 * f.Cells
		if f.States && n > 0 {
			n++
		}
		return n
	}
	if a, b := score(f), score(g); b > a || b > 0 && b == a && other < name {
		return other
	}
	return name
}

func overlap(a, b, from, to int64) float64 { return float64(max(min(b, to)-max(a, from), 0)) }

// point returns what is known of one step.
func (w *twin) point(step, number int64) *point {
	p, begin, end := &point{number: number}, number*step, (number+1)*step
	for _, d := range w.parts {
		if in := overlap(d.from, d.to, begin, end); in > 0 {
			for i, n := range d.diff {
				p.sums[i] += float32(n * in / float64(d.to-d.from))
			}
		}
	}
	for _, c := range w.covered {
		p.covered += float32(overlap(c[0], c[1], begin, end))
	}
	for _, c := range w.seen {
		p.seen += float32(overlap(c[0], c[1], begin, end))
	}
	for _, c := range w.parted {
		p.parted += float32(overlap(c[0], c[1], begin, end))
	}
	for i := range p.levels {
		p.levels[i] = none
	}
	for i, now := range w.now {
		memory, source, name := float32(none), known{}, ""
		for _, r := range slices.SortedFunc(slices.Values(w.all[i]), func(a, b Report) int { return len(a.Replica) - len(b.Replica) }) {
			f, err := Decode(r.Figures)
			if err == nil && f.Memory >= 0 {
				memory = max(memory, 0) + float32(f.Memory)
			}
			if err == nil && better(name, source.figures, r.Replica, f) != name {
				source, name = known{at: r.AtMS, figures: f}, r.Replica
			}
		}
		if now/step == number {
			p.levels[replicasAt] = max(p.levels[replicasAt], float32(len(w.all[i])))
			p.levels[memoryAt] = max(p.levels[memoryAt], memory)
		}
		if source.at/step == number {
			for j, v := range source.figures.Gauges {
				p.levels[j] = max(p.levels[j], float32(v))
			}
		}
	}
	return p
}

// fleet is the replicas of a test: their reports so far.
type fleet map[string]*known

// work lets a replica count.
func (f fleet) work(t *rapid.T, name string, now int64) {
	k := f[name]
	n := rapid.IntRange(0, 50).Draw(t, "jobs")
	k.figures.Counters[Placed] += uint64(n)
	k.figures.Counters[Refused] += uint64(n / 5)
	k.figures.Ends[Ended] += uint64(n)
	if k.figures.States {
		k.figures.Ends[Failed] += uint64(n / 3)
		k.figures.Ends[Dead] += uint64(n / 4)
		k.figures.Ends[Retries] += uint64(n / 2)
	}
	k.figures.Histograms[Assign][rapid.IntRange(0, buckets-1).Draw(t, "bucket")] += uint64(n)
	for i := range k.figures.Gauges {
		k.figures.Gauges[i] = rapid.Int64Range(-1, 9).Draw(t, "gauge")
	}
	k.figures.Memory = rapid.Int64Range(-1, 9).Draw(t, "memory")
	k.figures.Cells = rapid.IntRange(0, 2).Draw(t, "cells")
	k.at = now
}

func (f fleet) reports() (all []Report) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		text := f[name].figures.Encode()
		if f[name].figures.StartMS == 0 {
			text = "" // a release without figures
		}
		all = append(all, Report{name, f[name].at, text})
	}
	return all
}

// play draws reports of replicas that start, restart, die and fall silent, and hands each answer to
// observe.
func play(t *rapid.T, observe func(now int64, all []Report)) {
	now, live := epoch, fleet{}
	names := []string{"a", "bb", "ccc", "dddd"}
	for range rapid.IntRange(2, 25).Draw(t, "answers") {
		now += rapid.SampledFrom([]int64{100, 950, 1900, 2050, 2050, 9000, 40_000, 700_000}).Draw(t, "pause")
		for _, name := range names {
			switch does := rapid.IntRange(0, 19).Draw(t, name); {
			case does == 0:
				delete(live, name)
			case does == 1 || live[name] == nil && does < 8:
				live[name] = &known{figures: Figures{StartMS: now, States: rapid.Bool().Draw(t, "states")}}
				live.work(t, name, now)
			case does == 2 && live[name] == nil:
				live[name] = &known{at: now} // of an older release
			case live[name] != nil && does > 4:
				live.work(t, name, now)
			}
		}
		if len(live) > 0 {
			observe(now, live.reports())
		}
	}
}

// TestAgreesWithTwin: all rings show what the reports add up to, whatever replicas do, and a reader
// of the changes sees the same.
func TestAgreesWithTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, w := New(), &twin{}
		merged, seq := map[float64][]*float64{}, uint64(0)
		play(t, func(now int64, all []Report) {
			h.Observe(now, all)
			w.now, w.all = append(w.now, now), append(w.all, all)
			var news Table
			news, seq = h.Since(seq)
			for _, row := range news.Rows {
				merged[*row[0]] = row
			}
		})
		w.sum()
		for i, step := range []Step{Fine, Middle, Coarse} {
			table := h.Range(Reach(step), step)
			for _, row := range table.Rows {
				at := int64(*row[0])
				if at < epoch-60_000 || step != Coarse && at < w.now[len(w.now)-1]-30_000 {
					continue // cheaper, and the ends are where it can go wrong
				}
				number := at / table.StepMS
				want := w.point(table.StepMS, number)
				if got := h.rings[i].get(number); got != nil {
					sameSums(t, at, got, want)
				}
				same(t, table.Columns, row, h.rings[i].row(number, want))
				if seen := merged[*row[0]]; step == Fine && at >= w.now[0] && !slices.EqualFunc(seen, row, equal) {
					t.Errorf("the changes at %d say %v; want %v", at, texts(seen), texts(row))
				}
			}
		}
	})
}

func sameSums(t *rapid.T, at int64, got, want *point) {
	t.Helper()
	for i := range sums {
		if g, w := float64(got.sums[i]), float64(want.sums[i]); math.Abs(g-w) > 1e-3*(1+w) {
			t.Errorf("sum %d at %d is %v; want %v", i, at, g, w)
		}
	}
}

func equal(a, b *float64) bool { return a == b || a != nil && b != nil && *a == *b }

func texts(row []*float64) (all []string) {
	for _, v := range row {
		all = append(all, text(v))
	}
	return all
}

func same(t *rapid.T, columns []string, got, want []*float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("a row of %d; want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if strings.Contains(columns[i], "_p") && g != nil && w != nil {
			continue // where half of them are below an empty bucket, a rounding decides about it
		}
		if (g == nil) != (w == nil) || g != nil && math.Abs(*g-*w) > 0.002+1e-3*math.Abs(*w) {
			t.Errorf("%s at %.0f: %s; want %s", columns[i], *want[0], text(g), text(w))
		}
	}
}

func text(v *float64) string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprint(*v)
}

// column returns the values of a series, "-" for none.
func column(table Table, name string) (values []string) {
	i := slices.Index(table.Columns, name)
	for _, row := range table.Rows {
		if row[i] == nil {
			values = append(values, "-")
		} else {
			values = append(values, fmt.Sprint(*row[i]))
		}
	}
	return values
}

// TestRestartAndGap: a counter that begins again is no spike, and a silence is a gap.
func TestRestartAndGap(t *testing.T) {
	t.Parallel()
	h := New()
	now, f := epoch, Figures{StartMS: epoch, Cells: 1, Memory: Unknown}
	report := func(placed uint64) {
		f.Counters[Placed] = placed
		h.Observe(now, []Report{{"a", now, f.Encode()}})
	}
	for i := range uint64(5) { // 10 a second
		report(1_000_000 + 20*i)
		now += 2000
	}
	f.StartMS = now
	for i := range uint64(3) {
		report(5 + 20*i)
		now += 2000
	}
	now += 18_000
	for i := range uint64(3) {
		report(7_000_000 + 20*i)
		now += 2000
	}
	got := column(h.Range(36*time.Second, Fine), "arrivals_placed")
	if want := strings.Fields("10 10 10 - 10 10 - - - - - - - - - - 10 10"); !slices.Equal(got, want) {
		t.Errorf("placed %v; want %v", got, want)
	}
	table, seq := h.Since(0)
	if n := len(table.Rows); n != 19 {
		t.Errorf("%d steps are new to a new reader; want 19", n)
	}
	if table, next := h.Since(seq); len(table.Rows) != 0 || next != seq {
		t.Errorf("%d steps are new to a reader who has all, then %d; want none, then %d", len(table.Rows), next, seq)
	}
	if got := column(h.Range(time.Minute, Middle), "replicas"); !slices.Contains(got, "1") {
		t.Errorf("replicas %v; want 1 somewhere", got)
	}
}

// TestClockGoesBack: after a failover to a server whose clock is behind, the history goes on.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	h := New()
	f := Figures{StartMS: epoch, Cells: 1}
	for _, now := range []int64{3_600_000, 3_602_000, 0, 2000, 4000, 6000, 8000} {
		f.Counters[Placed] += 20
		h.Observe(epoch+now, []Report{{"a", epoch + now, f.Encode()}})
	}
	if got := column(h.Range(8*time.Second, Fine), "arrivals_placed"); !slices.Equal(got, []string{"10", "10", "10", "10"}) {
		t.Errorf("placed %v; want 10 in each step", got)
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	points := 0
	for _, r := range New().rings {
		points += len(r.points)
	}
	const replicas = 16
	if got := points*int(unsafe.Sizeof(point{})) + replicas*int(unsafe.Sizeof(known{})); got > 2<<20 {
		t.Errorf("%d bytes; want at most 2 MiB of the 4 MiB that are promised", got)
	}
}

// BenchmarkObserve is what a replica does of 16 every 1.9 s.
func BenchmarkObserve(b *testing.B) {
	h, live := New(), fleet{}
	for i := range 16 {
		live[fmt.Sprintf("replica-%d", i)] = &known{figures: Figures{StartMS: epoch, Cells: 1}}
	}
	now := epoch
	for b.Loop() {
		now += 1900
		for _, k := range live {
			k.at = now
			k.figures.Counters[Placed] += 1000
			for j := range buckets {
				k.figures.Histograms[RedisCall][j] += 100
			}
		}
		b.StopTimer()
		all := live.reports()
		b.StartTimer()
		h.Observe(now, all)
	}
}
