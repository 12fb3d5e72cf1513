package faults

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// forever ends a span that has not ended.
const forever = time.Duration(math.MaxInt64)

// span is the time from from until to, excluding to.
type span struct{ from, to time.Duration }

func (s span) length() time.Duration { return s.to - s.from }

func (s span) has(at time.Duration) bool { return s.from <= at && at < s.to }

// both returns the time that is in both spans; it is empty if its length is not positive.
func (s span) both(o span) span { return span{max(s.from, o.from), min(s.to, o.to)} }

// spans are in order of time and apart from each other.
type spans []span

// joined returns the times in any of list. Times with less than gap between them are one.
func joined(list []span, gap time.Duration) (out spans) {
	list = slices.DeleteFunc(slices.Clone(list), func(s span) bool { return s.length() <= 0 })
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range list {
		if n := len(out); n > 0 && s.from-out[n-1].to <= gap {
			out[n-1].to = max(out[n-1].to, s.to)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// outside returns the part of s that is in none of the spans.
func (list spans) outside(s span) (out spans) {
	for _, hole := range list {
		if before := (span{s.from, min(s.to, hole.from)}); before.length() > 0 {
			out = append(out, before)
		}
		s.from = max(s.from, hole.to)
	}
	if s.length() > 0 {
		out = append(out, s)
	}
	return out
}

// at returns the span that contains a moment.
func (list spans) at(moment time.Duration) (s span, ok bool) {
	i := slices.IndexFunc(list, func(s span) bool { return s.has(moment) })
	if i < 0 {
		return span{}, false
	}
	return list[i], true
}
