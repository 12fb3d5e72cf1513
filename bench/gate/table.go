package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
)

// table has the runs of both sides in one mode: jobs a second, the processor time of a job, and its parts by process.
type table struct {
	mode      string
	jobs, cpu row
	parts     []row
}

// row has one figure of each round.
type row struct {
	name       string
	base, this []float64
}

func (t *table) add(base, this figures) {
	if t.parts == nil {
		t.jobs.name, t.cpu.name = "jobs/s", "CPU us a job"
		for _, c := range base.cpu {
			t.parts = append(t.parts, row{name: "  " + c.process})
		}
	}
	t.jobs.add(base.jobsPerSecond, this.jobsPerSecond)
	t.cpu.add(base.sum(), this.sum())
	for i := range t.parts {
		t.parts[i].add(base.cpu[i].us, this.cpu[i].us)
	}
}

func (f figures) sum() (us float64) {
	for _, c := range f.cpu {
		us += c.us
	}
	return us
}

func (r *row) add(base, this float64) {
	r.base, r.this = append(r.base, base), append(r.this, this)
}

// ratio is that of the medians, this by base.
func (r *row) ratio() float64 { return median(r.this) / median(r.base) }

// pairs are the ratios of the rounds, the smallest first.
func (r *row) pairs() []float64 {
	out := make([]float64, len(r.base))
	for i := range out {
		out[i] = r.this[i] / r.base[i]
	}
	slices.Sort(out)
	return out
}

// median is the mean of the two in the middle where the number of values is even.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// check says whether the side is worse than the limit allows; 0 allows everything.
func (t *table) check(limit float64) error {
	if limit == 0 {
		return nil
	}
	var errs []error
	if ratio := t.jobs.ratio(); ratio < limit {
		errs = append(errs, fmt.Errorf("%s: jobs/s are %.3f of base, the limit is %.3f", t.mode, ratio, limit))
	}
	if ratio := t.cpu.ratio(); ratio > 1/limit {
		errs = append(errs, fmt.Errorf("%s: CPU a job is %.3f of base, the limit is %.3f", t.mode, ratio, 1/limit))
	}
	return errors.Join(errs...)
}

// latest is the last round in words.
func (t *table) latest() string {
	last := len(t.jobs.base) - 1
	return fmt.Sprintf("%s: base %s jobs/s, %.1f us a job; this %s jobs/s, %.1f us a job", t.mode,
		measure.Thousands(t.jobs.base[last]), t.cpu.base[last], measure.Thousands(t.jobs.this[last]), t.cpu.this[last])
}

// String is the table with the medians, the ratio of the medians, and the range of the rounds' ratios.
func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s%10s%10s%8s   %s\n", t.mode, "base", "this", "ratio", "pairs: min, median, max")
	line := func(r *row, format func(float64) string) {
		pairs := r.pairs()
		fmt.Fprintf(&b, "  %-24s%10s%10s%8.3f   %.3f  %.3f  %.3f\n", r.name, format(median(r.base)), format(median(r.this)), r.ratio(),
			pairs[0], median(pairs), pairs[len(pairs)-1])
	}
	tenths := func(f float64) string { return fmt.Sprintf("%.1f", f) }
	line(&t.jobs, measure.Thousands)
	line(&t.cpu, tenths)
	for i := range t.parts {
		line(&t.parts[i], tenths)
	}
	return b.String()
}
