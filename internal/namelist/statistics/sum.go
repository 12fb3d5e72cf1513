package statistics

import (
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
)

const (
	// remember is how long a silent reader's counters are kept. If it comes back later, it counts
	// from then on. Beyond manyKnown readers, the counters are kept for a minute.
	remember  = 5 * time.Minute
	manyKnown = 10_000
	// refresh is when the time of a reader that goes on to report is written anew.
	refresh = time.Minute
	// newborn is the age up to which all counters of a reader that is not known count. An older
	// reader was counted before, and Redis has lost that, or it was away for long.
	newborn = 2 * time.Minute
	// maxGrowth bounds what one reader can add to one counter at a time.
	maxGrowth = 1 << 36
	// maxName bounds the name of an application: two names of up to 64 characters with / between. A
	// longer one, of a signed token, counts for its tenant.
	maxName = 129
)

// sum returns what readers have counted since they were last read, by application, and what to keep
// of it. Seq and History are the caller's.
func sum(read *namelist.Counted) (by map[string]count.Counts, w namelist.CountedWrite) {
	by, w.Known = make(map[string]count.Counts), make(map[string]string)
	now := read.At.UnixMilli()
	reports := make(map[string]bool, len(read.Reports))
	for i := range read.Reports {
		report := &read.Reports[i]
		reports[report.Reader] = true
		if report.Left {
			w.Left = append(w.Left, *report)
		}
		is, err := count.ParseReport(report.Counts)
		if err != nil {
			continue // replicas refuse such a report; a process with Redis can write anything
		}
		was, seen := readKnown(read.Known[report.Reader])
		grown := growth(&was, &is)
		if !grown.Zero() {
			name := application(report.Owner)
			total := by[name]
			total.Add(&grown)
			by[name] = total
		}
		if !grown.Zero() || was.Incarnation != is.Incarnation || now-seen > refresh.Milliseconds() {
			is.AgeMS = 0
			w.Known[report.Reader] = strconv.FormatInt(now, 10) + " " + is.String()
		}
	}
	last := remember
	if len(read.Known) > manyKnown {
		last = time.Minute
	}
	for reader, text := range read.Known {
		if _, seen := readKnown(text); !reports[reader] && now-seen > last.Milliseconds() {
			w.Forget = append(w.Forget, reader)
		}
	}
	return by, w
}

func application(owner string) string {
	if len(owner) > maxName {
		owner, _, _ = strings.Cut(owner, "/")
	}
	return owner
}

// readKnown reads what is kept of a reader, and when it was last read, in Unix ms.
func readKnown(text string) (r count.Report, seen int64) {
	at, rest, _ := strings.Cut(text, " ")
	seen, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return r, 0
	}
	r, err = count.ParseReport(rest)
	if err != nil {
		return count.Report{}, 0
	}
	return r, seen
}

// growth returns the counts of a reader since it was last read.
func growth(was, is *count.Report) (grown count.Counts) {
	if was.Incarnation == "" && is.AgeMS > newborn.Milliseconds() {
		return grown
	}
	grown = is.Counts
	if was.Incarnation == is.Incarnation {
		for i := range grown {
			grown[i] -= min(grown[i], was.Counts[i])
		}
	}
	for i := range grown {
		grown[i] = min(grown[i], maxGrowth)
	}
	return grown
}
