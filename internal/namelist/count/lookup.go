package count

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// The counters for the lookups of one list. Stored history has them in this order: new counters go
// to the end.
const (
	// Hits, Misses and Unknown are lookups without detail, in old history.
	Hits = iota
	Misses
	Unknown
	FilterNo // the filter excludes the id
	CacheYes
	CacheNo
	RedisYes
	RedisNo
	EditsYes
	EditsNo
	WholeYes // all ids are in memory
	WholeNo
	ExpiredNo // the whole list has expired and answers no
	// FalsePositives are lookups that the filter let through and whose id the version does not have.
	FalsePositives
	// RemoteMicros is the time of calls for ids in microseconds. Each call is also one of the next
	// five, by its time.
	RemoteMicros
	RemoteTo1ms
	RemoteTo5ms
	RemoteTo20ms
	RemoteTo100ms
	RemoteLonger
	// Unknowns is the first of the unknown answers by reason, which are the last counters.
	Unknowns
	Cells = Unknowns + 11
)

// Names has the names of all counters, as reports have them.
var Names = [Cells]string{
	"hits", "misses", "unknown", "filter_no", "cache_yes", "cache_no", "redis_yes", "redis_no", "edits_yes", "edits_no",
	"whole_yes", "whole_no",
	"expired_no", "false_positives", "remote_us", "remote_to_1ms", "remote_to_5ms", "remote_to_20ms", "remote_to_100ms",
	"remote_longer", "unknown_list", "unknown_deleted", "unknown_draft", "unknown_not_loaded",
	"unknown_expired", "unknown_timeout", "unknown_overloaded", "unknown_segment", "unknown_moved", "unknown_invalid",
	"unknown_format",
}

var cellOf = func() map[string]int {
	all := make(map[string]int, Cells)
	for i, name := range Names {
		all[name] = i
	}
	return all
}()

// Counts holds one number for each counter.
type Counts [Cells]uint64

// Add adds other to c. A sum stops at the largest number.
func (c *Counts) Add(other *Counts) {
	for i, n := range other {
		if c[i] += n; c[i] < n {
			c[i] = ^uint64(0)
		}
	}
}

// Zero reports whether nothing was counted.
func (c *Counts) Zero() bool { return *c == Counts{} }

// Results returns how many lookups were answered yes, answered no, and unknown.
func (c *Counts) Results() (hits, misses, unknown uint64) {
	hits = c[CacheYes] + c[RedisYes] + c[EditsYes] + c[WholeYes] + c[Hits]
	misses = c[FilterNo] + c[CacheNo] + c[RedisNo] + c[EditsNo] + c[WholeNo] + c[ExpiredNo] + c[Misses]
	unknown = c[Unknown]
	for _, n := range c[Unknowns:] {
		unknown += n
	}
	return hits, misses, unknown
}

// Calls returns how many calls for ids were made.
func (c *Counts) Calls() (n uint64) {
	for _, calls := range c[RemoteTo1ms : RemoteLonger+1] {
		n += calls
	}
	return n
}

// Plain returns the counts without their detail.
func (c *Counts) Plain() (out Counts) {
	out[Hits], out[Misses], out[Unknown] = c.Results()
	return out
}

// Report is what a client has counted since its start.
type Report struct {
	// Incarnation is a text that a client makes anew at each start, so that its counters begin at 0.
	Incarnation string
	// AgeMS is the time since the start, in milliseconds; 0 if the client does not tell.
	AgeMS  int64
	Counts Counts
}

// MaxText bounds the text of a report, in bytes.
const MaxText = 2048

// age is the name of Report.AgeMS.
const age = "age_ms"

// String returns the text that ParseReport reads: the incarnation, then name=number for each
// counter that is not 0.
func (r *Report) String() string {
	out := append(make([]byte, 0, 256), r.Incarnation...)
	add := func(name string, n uint64) {
		if n != 0 {
			out = strconv.AppendUint(append(append(append(out, ' '), name...), '='), n, 10)
		}
	}
	add(age, uint64(max(0, r.AgeMS)))
	for i, n := range r.Counts {
		add(Names[i], n)
	}
	return string(out)
}

// maxCount bounds a counter in a report, so that sums do not overflow.
const maxCount = 1 << 53

// ParseReport reads the text of a report. It leaves out names that this release does not know.
func ParseReport(text string) (r Report, err error) {
	if len(text) > MaxText {
		return Report{}, fmt.Errorf("has %d bytes, expected at most %d", len(text), MaxText)
	}
	var rest string
	r.Incarnation, rest, _ = strings.Cut(text, " ")
	if freeslot.ValidateName("incarnation", r.Incarnation) != nil {
		return Report{}, fmt.Errorf("begins with %.64q, expected a name made anew at each start", r.Incarnation)
	}
	for rest != "" {
		var pair string
		pair, rest, _ = strings.Cut(rest, " ")
		name, digits, _ := strings.Cut(pair, "=")
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || name == "" || n > maxCount {
			return Report{}, fmt.Errorf("has %.64q, expected name=number, up to %d, with spaces between", pair, int64(maxCount))
		}
		if i, known := cellOf[name]; known {
			r.Counts[i] = n
		} else if name == age {
			r.AgeMS = int64(n)
		}
	}
	return r, nil
}
