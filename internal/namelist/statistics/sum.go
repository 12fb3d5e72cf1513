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

// report is what a reader has reported, by row: its application for a list, rules for a chain.
type report struct {
	incarnation string
	ageMS       int64
	rows        map[string]count.Counts
	text        string // of the report without its age
}

// decoder returns how reports on a list or a chain, by its mark, are read.
func decoder(mark string) func(owner, text string) (report, error) {
	if _, isChain := namelist.ChainOf(mark); !isChain {
		return func(owner, text string) (report, error) {
			is, err := count.ParseReport(text)
			r := report{incarnation: is.Incarnation, ageMS: is.AgeMS}
			is.AgeMS = 0
			r.rows, r.text = map[string]count.Counts{application(owner): is.Counts}, is.String()
			return r, err
		}
	}
	return func(_, text string) (report, error) {
		is, err := count.ParseRuleReport(text)
		r := report{incarnation: is.Incarnation, ageMS: is.AgeMS, rows: make(map[string]count.Counts, len(is.Rules))}
		for rule, c := range is.Rules {
			var row count.Counts
			copy(row[:], c[:])
			r.rows[rule] = row
		}
		is.AgeMS = 0
		r.text = is.String()
		return r, err
	}
}

// sum returns what readers have counted since they were last read, by row, and what to keep of it.
// Seq and History are the caller's.
func sum(
	read *namelist.Counted, decode func(owner, text string) (report, error),
) (by map[string]count.Counts, w namelist.CountedWrite) {
	by, w.Known = make(map[string]count.Counts), make(map[string]string)
	now := read.At.UnixMilli()
	reports := make(map[string]bool, len(read.Reports))
	for i := range read.Reports {
		from := &read.Reports[i]
		reports[from.Reader] = true
		if from.Left {
			w.Left = append(w.Left, *from)
		}
		is, err := decode(from.Owner, from.Counts)
		if err != nil {
			continue // replicas refuse such a report; a process with Redis can write anything
		}
		seen, text := readKnown(read.Known[from.Reader])
		was, err := decode(from.Owner, text)
		if err != nil {
			was, seen = report{}, 0
		}
		grew := false
		for name, counts := range is.rows {
			grown := growth(&was, &is, was.rows[name], counts)
			if grown.Zero() {
				continue
			}
			grew = true
			total := by[name]
			total.Add(&grown)
			by[name] = total
		}
		if grew || was.incarnation != is.incarnation || now-seen > refresh.Milliseconds() {
			w.Known[from.Reader] = strconv.FormatInt(now, 10) + " " + is.text
		}
	}
	last := remember
	if len(read.Known) > manyKnown {
		last = time.Minute
	}
	for reader, text := range read.Known {
		if seen, _ := readKnown(text); !reports[reader] && now-seen > last.Milliseconds() {
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

// readKnown returns when a reader was last read, in Unix ms, and its report then.
func readKnown(text string) (seen int64, report string) {
	at, report, _ := strings.Cut(text, " ")
	seen, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return 0, ""
	}
	return seen, report
}

// growth returns the counts of a row of a reader since it was last read.
func growth(was, is *report, before, counts count.Counts) (grown count.Counts) {
	if was.incarnation == "" && is.ageMS > newborn.Milliseconds() {
		return grown
	}
	grown = counts
	if was.incarnation == is.incarnation {
		for i := range grown {
			grown[i] -= min(grown[i], before[i])
		}
	}
	for i := range grown {
		grown[i] = min(grown[i], maxGrowth)
	}
	return grown
}
