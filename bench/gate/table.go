package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
)

// table has the runs of both sides in one mode, a row for each figure.
type table struct {
	mode string
	rows []row
}

// row has one figure of each round.
type row struct {
	name       string
	base, this []float64
}

func (t *table) add(base, this []figure) {
	if t.rows == nil {
		t.rows = make([]row, len(base))
	}
	for i := range t.rows {
		r := &t.rows[i]
		r.name, r.base, r.this = base[i].name, append(r.base, base[i].value), append(r.this, this[i].value)
	}
}

// ratio is the median of this side divided by the median of base.
func (r *row) ratio() float64 { return measure.Median(r.this) / measure.Median(r.base) }

// pairs are the ratios of the rounds.
func (r *row) pairs() []float64 {
	out := make([]float64, len(r.base))
	for i := range out {
		out[i] = r.this[i] / r.base[i]
	}
	return out
}

// check returns an error if this side is worse than the limit allows; 0 allows everything.
func (t *table) check(limit float64) error {
	if limit == 0 {
		return nil
	}
	var errs []error
	if ratio := t.rows[jobsAt].ratio(); ratio < limit {
		errs = append(errs, fmt.Errorf("%s: jobs/s are %.3f of base, the limit is %.3f", t.mode, ratio, limit))
	}
	if ratio := t.rows[cpuAt].ratio(); ratio > 1/limit {
		errs = append(errs, fmt.Errorf("%s: CPU a job is %.3f of base, the limit is %.3f", t.mode, ratio, 1/limit))
	}
	return errors.Join(errs...)
}

// latest is the last round in words.
func (t *table) latest() string {
	jobs, cpu := &t.rows[jobsAt], &t.rows[cpuAt]
	last := len(jobs.base) - 1
	return fmt.Sprintf("%s: base %s jobs/s, %.1f us a job; this %s jobs/s, %.1f us a job", t.mode,
		measure.Thousands(jobs.base[last]), cpu.base[last], measure.Thousands(jobs.this[last]), cpu.this[last])
}

// String has the medians, the ratio of the medians, and the rounds' own ratios.
func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s%10s%10s%8s   %s\n", t.mode, "base", "this", "ratio", "rounds: min, median, max")
	for i := range t.rows {
		r := &t.rows[i]
		format := func(f float64) string { return fmt.Sprintf("%.1f", f) }
		if i == jobsAt {
			format = measure.Thousands[float64]
		}
		pairs := r.pairs()
		fmt.Fprintf(&b, "  %-24s%10s%10s%8.3f   %.3f  %.3f  %.3f\n", r.name, format(measure.Median(r.base)), format(measure.Median(r.this)), r.ratio(),
			slices.Min(pairs), measure.Median(pairs), slices.Max(pairs))
	}
	return b.String()
}
