package namelist

import (
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// cells holds the counter of each answer that is not unknown, by its source.
var cells = [...][6]uint8{
	Yes: {
		SourceEdits: count.EditsYes, SourceCache: count.CacheYes, SourceRedis: count.RedisYes, SourceWhole: count.WholeYes,
	},
	No: {
		SourceNone: count.ExpiredNo, SourceEdits: count.EditsNo, SourceFilter: count.FilterNo, SourceCache: count.CacheNo,
		SourceRedis: count.RedisNo, SourceWhole: count.WholeNo,
	},
}

// count counts a lookup by its answer.
func (l *List) count(a *Answer) {
	if a.Verdict == Unknown {
		l.counts.Inc(count.Unknowns + int(a.Reason) - 1)
		return
	}
	l.counts.Inc(int(cells[a.Verdict][a.Source]))
}

// countPassed counts an id that the filter let through although the version does not have it.
func (l *List) countPassed(p *snapshot, one *ask) {
	if len(p.blocks) > 0 && p.blocks[form.Block(one.question.hash, p.version.BlockBits)] != nil &&
		one.found.why == ReasonNone && !one.found.entry.has {
		l.counts.Inc(count.FalsePositives)
	}
}

// countCall counts a call for ids that took that long.
func (l *List) countCall(took time.Duration) {
	l.counts.Add(count.RemoteMicros, uint64(took.Microseconds()))
	cell := count.RemoteTo1ms
	for _, limit := range []time.Duration{
		time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond,
	} {
		if took <= limit {
			break
		}
		cell++
	}
	l.counts.Inc(cell)
}

// Counted is what a client has counted of the lookups of one list since the client's start.
type Counted struct {
	// Hits are answers Yes, Misses answers No. Lookups are both and Unknown.
	Lookups, Hits, Misses, Unknown uint64
	// FalsePositives counts the lookups that the filter let through and whose id the version does
	// not have.
	FalsePositives uint64
	// Calls counts the calls for ids that memory could not decide. CallTime is the time of all of
	// them.
	Calls    uint64
	CallTime time.Duration
}

// Counted returns what was counted of the lookups of the list. A lookup is one id of Check, Peek or
// CheckAll.
func (l *List) Counted() Counted {
	c := l.counts.Counts()
	out := Counted{
		FalsePositives: c[count.FalsePositives], Calls: c.Calls(),
		CallTime: time.Duration(c[count.RemoteMicros]) * time.Microsecond,
	}
	out.Hits, out.Misses, out.Unknown = c.Results()
	out.Lookups = out.Hits + out.Misses + out.Unknown
	return out
}

// counted returns what the list has counted, as the client reports it.
func (c *Client) counted(l *List) string {
	r := count.Report{
		Incarnation: c.incarnation, AgeMS: time.Since(c.begun).Milliseconds(), Counts: l.counts.Counts(),
	}
	return r.String()
}

// left returns the report of a client that closes: it leaves what was counted last.
func (c *Client) left(l *List) lists.ClientReport { return lists.ClientReport{Counts: c.counted(l)} }

// countedBy returns what a chain has counted, as the client reports it.
func (c *Client) countedBy(of *Chain) string {
	r := count.RuleReport{
		Incarnation: c.incarnation, AgeMS: time.Since(of.begun).Milliseconds(), Rules: of.counts.Totals(),
	}
	return r.String()
}
