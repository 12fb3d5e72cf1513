package history

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/script"
)

// some draws any figures.
func some(t *rapid.T) (f Figures) {
	count := rapid.Uint64Range(0, 1<<40)
	f.StartMS, f.Cells = rapid.Int64Range(0, 1<<42).Draw(t, "start"), rapid.IntRange(0, 64).Draw(t, "cells")
	f.Keeps, f.Memory = rapid.Bool().Draw(t, "keeps"), rapid.Int64Range(-1, 1<<40).Draw(t, "memory")
	for i := range f.Counters {
		f.Counters[i] = count.Draw(t, "counter")
	}
	f.States = rapid.Bool().Draw(t, "states")
	for i := range f.Ends {
		if i == Ended || f.States {
			f.Ends[i] = count.Draw(t, "end")
		}
	}
	for i := range f.Gauges {
		f.Gauges[i] = rapid.Int64Range(-1, 1<<40).Draw(t, "gauge")
	}
	for h := range f.Histograms {
		for i := range buckets {
			f.Histograms[h][i] = count.Draw(t, "bucket")
		}
	}
	return f
}

func TestFiguresRoundTrip(t *testing.T) {
	t.Parallel()
	if len(bounds) != buckets-1 {
		t.Fatalf("%d bounds for %d buckets; want one less: this is another version of the encoding", len(bounds), buckets)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := some(t)
		text := want.Encode()
		got, err := Decode(text)
		if err != nil {
			t.Fatalf("decode: %v; want no error", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		// A later release appends groups.
		if got, err = Decode(text + "\x02\x07\x08"); err != nil || got != want {
			t.Errorf("with another group %v, %+v; want the same", err, got)
		}
		if len(text) > maxBytes {
			t.Errorf("%d bytes; want at most %d", len(text), maxBytes)
		}
	})
}

// TestOtherReleases: more values in a group are left out, fewer are 0 or unknown, a histogram with
// other buckets is empty, and another version is refused.
func TestOtherReleases(t *testing.T) {
	t.Parallel()
	b := []byte{version}
	for _, n := range []uint64{5, keeps, 1} { // start, flags, cells
		b = binary.AppendUvarint(b, n)
	}
	b = appendGroup(b, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9})
	b = appendGroup(b, nil)
	b = appendGroup(b, []uint64{8})
	b = appendGroup(b, []uint64{0})
	b = appendGroup(b, []uint64{1, 1, 1})
	got, err := Decode(string(b))
	want := Figures{StartMS: 5, Keeps: true, Cells: 1, Counters: [counters]uint64{1, 2, 3, 4}, Memory: Unknown}
	for i := range want.Gauges {
		want.Gauges[i] = Unknown
	}
	want.Gauges[Waiting] = 7
	if err != nil {
		t.Fatalf("decode: %v; want no error", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, text := range []string{"", "\x00", "\x02", string(b[:len(b)-2]), "\x01\xff"} {
		if _, err := Decode(text); err == nil {
			t.Errorf("decoded %q; want an error", text)
		}
	}
}

// TestBesideOldRelease: during a rolling upgrade each release reads the figures of the other one.
// The former one told of one end, and reads no further.
func TestBesideOldRelease(t *testing.T) {
	t.Parallel()
	const old = "\x01\x05\x01\x01\x04\x01\x02\x03\x04\x01\x09\x09\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01\x08"
	got, err := Decode(old)
	if err != nil || got.States || got.Ends != [ends]uint64{Ended: 9} || got.Gauges[Waiting] != 7 || got.Memory != 7 {
		t.Errorf("figures of the former release are %+v, %v; want 9 ends, none by state, 7 waiting, memory 7", got, err)
	}
	got.States, got.Ends = true, [ends]uint64{9, 1, 2, 3, 1, 5}
	r := reader{rest: []byte(got.Encode()[1:])}
	var counted [4]uint64
	var ended [1]uint64
	var known [9]uint64
	_, _, _ = r.next(), r.next(), r.next()
	r.group(counted[:])
	r.group(ended[:])
	if r.group(known[:]); r.bad || counted != [4]uint64{1, 2, 3, 4} || ended[0] != 9 || known[Waiting] != 8 {
		t.Errorf("the former release reads %v, %v, %v; want what it reads of its own", counted, ended, known)
	}
	p := point{number: 0, covered: 2000, seen: 2000}
	p.sums[endsAt+Ended] = 4
	row := newRing(2*time.Second, time.Minute).row(0, &p)
	for i, name := range Columns() {
		if told := row[i] != nil; told != (name == "ends") && (strings.HasPrefix(name, "ends") || name == "retries") {
			t.Errorf("%s of a step of the former release has a value: %v; want one of ends alone", name, told)
		}
	}
}

func FuzzDecode(f *testing.F) {
	figures := Figures{StartMS: 5, Cells: 3, Memory: 7}
	f.Add(figures.Encode())
	f.Add("\x01")
	f.Add("\x01\x05\x01\x01\x41")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Decode(text)
		if err != nil {
			return
		}
		if again, err := Decode(got.Encode()); err != nil || again != got {
			t.Errorf("%q: %+v, then %+v, %v; want the same", text, got, again, err)
		}
	})
}

func FuzzDecodePoint(f *testing.F) {
	p := point{covered: 60_000, seen: 1}
	p.sums[0], p.levels[1] = 3.5, none
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decodePoint(text)
		if err != nil {
			return
		}
		for _, v := range got.sums {
			if v < 0 || math.IsNaN(float64(v)) {
				t.Errorf("%q: a sum of %v; want 0 or more", text, v)
			}
		}
	})
}

func TestReadBuckets(t *testing.T) {
	t.Parallel()
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: script.LatencyBuckets})
	for _, seconds := range []float64{0, 20e-6, 21e-6, 0.7, 5, 6, 7} {
		h.Observe(seconds)
	}
	var got Buckets
	got.ReadBuckets(h)
	got.ReadBuckets(h) // adds
	want := Buckets{0: 4, 1: 2, 19: 2, 20: 2, 21: 4}
	if got != want {
		t.Errorf("buckets %v; want %v", got, want)
	}
}

// TestQuantile compares with the places of the observations themselves, to within a bucket.
func TestQuantile(t *testing.T) {
	t.Parallel()
	if _, ok := quantile(0.5, make([]float32, buckets)); ok {
		t.Error("a quantile of nothing; want none")
	}
	b := make([]float32, buckets)
	b[10], b[buckets-1] = 98, 2 // 98 of 0.75 to 1 ms
	if got, _ := quantile(0.5, b); math.Abs(got-(0.75e-3+0.25e-3*50/98)) > 1e-9 {
		t.Errorf("median %v; want 50/98 of the way from 0.75 to 1 ms", got)
	}
	if got, _ := quantile(0.99, b); got != 5 {
		t.Errorf("p99 %v; want the highest bound, 5", got)
	}
}
