package history

import (
	"math"
	"slices"
	"time"
)

// Table holds points by column. It is safe to keep.
type Table struct {
	// StepMS is the time between two rows.
	StepMS int64
	// Columns names the columns. The first is t_ms, the beginning of a step in milliseconds since
	// 1970 by Redis' clock.
	Columns []string
	// Rows has a row for each step, in the order of time. A nil value means that nothing is known.
	Rows [][]*float64
}

// series is one column. value returns false if the point has no value.
type series struct {
	name, help string
	value      func(p *point, step int64) (float64, bool)
}

// all lists the series in the order of their columns.
var all = []series{
	{"arrivals_placed", "Jobs that got a slot when they were submitted, per second.", rate(Placed)},
	{"arrivals_queued", "Jobs that had to wait when they were submitted, per second.", rate(Queued)},
	{"arrivals_refused", "Jobs that were refused, per second.", rate(Refused)},
	{"ends", "Jobs that ended, per second.", ended},
	{"ends_succeeded", "Jobs that succeeded, per second.", succeeded},
	{"ends_failed", "Jobs that failed for good, per second.", endRate(Failed)},
	{"ends_dead", "Jobs that died because all their attempts failed, per second.", endRate(Dead)},
	{"ends_cancelled", "Jobs that were cancelled, per second.", endRate(Cancelled)},
	{"ends_expired", "Jobs that expired before their end, per second.", endRate(Expired)},
	{"retries", "Attempts that failed or were lost and were followed by another one, per second.", endRate(Retries)},
	{"assign_p50_ms", "Median time from a submit to its assignment, of jobs that did not wait.", percentile(Assign, 0.5)},
	{"assign_p99_ms", "The same for 99 of 100.", percentile(Assign, 0.99)},
	{"waiting", "Jobs that wait for a slot.", level(Waiting)},
	{"held", "Jobs that a limit of their tenant or concurrency key holds back.", level(Held)},
	{"oldest_wait_ms", "How long the oldest waiting job has waited.", level(OldestWait)},
	{"slots_used", "Slots in use.", level(SlotsUsed)},
	{"slots_total", "Slots of all nodes that are not silent.", level(SlotsTotal)},
	{"nodes_online", "Nodes that may get jobs.", level(NodesOnline)},
	{"nodes_draining", "Nodes that drain.", level(NodesDrain)},
	{"nodes_silent", "Nodes that give no sign of life.", level(NodesSilent)},
	{"redis_call_p50_ms", "Median time of a call to Redis, as the replicas see it.", percentile(RedisCall, 0.5)},
	{"redis_call_p99_ms", "The same for 99 of 100.", percentile(RedisCall, 0.99)},
	{"redis_memory_bytes", "Memory that the servers of Redis use.", level(RedisMemory)},
	{"events_delay_p50_ms", "Median time until a replica has applied a change of a node.", percentile(EventsDelay, 0.5)},
	{"events_delay_p99_ms", "The same for 99 of 100.", percentile(EventsDelay, 0.99)},
	{"replicas", "Replicas that run.", level(replicasAt)},
	{"replicas_cpu", "Processor cores that the replicas use.", cores},
	{"replicas_memory_bytes", "Memory of the replicas.", level(memoryAt)},
}

// Help returns the meaning of each series, by its column.
func Help() map[string]string {
	help := make(map[string]string, len(all))
	for _, s := range all {
		help[s.name] = s.help
	}
	return help
}

// Columns returns the names of all columns: t_ms, then the series.
func Columns() []string {
	names := make([]string, 1, len(all)+1)
	names[0] = "t_ms"
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// leastCovered is the part of a step that must be known for a rate: of less, one job would seem
// many.
const leastCovered = 0.25

func perSecond(sum, ms float32, step int64) (float64, bool) {
	if ms < leastCovered*float32(step) {
		return 0, false
	}
	return float64(sum) / float64(ms) * 1000, true
}

func rate(counter int) func(*point, int64) (float64, bool) {
	return func(p *point, step int64) (float64, bool) { return perSecond(p.sums[counter], p.covered, step) }
}

func ended(p *point, step int64) (float64, bool) {
	return perSecond(p.sums[endsAt+Ended], p.seen, step)
}

func endRate(end int) func(*point, int64) (float64, bool) {
	return func(p *point, step int64) (float64, bool) { return perSecond(p.sums[endsAt+end], p.parted, step) }
}

// succeeded has no value where not all of the known ends are known by state.
func succeeded(p *point, step int64) (float64, bool) {
	n := p.sums[endsAt+Ended]
	for _, other := range []int{Dead, Failed, Cancelled, Expired} {
		n -= p.sums[endsAt+other]
	}
	rate, ok := perSecond(max(n, 0), p.parted, step)
	return rate, ok && p.parted >= p.seen-1
}

// cores returns microseconds of processor time per microsecond.
func cores(p *point, step int64) (float64, bool) {
	micros, ok := perSecond(p.sums[CPU], p.covered, step)
	return micros / 1e6, ok
}

func percentile(histogram int, q float64) func(*point, int64) (float64, bool) {
	return func(p *point, _ int64) (float64, bool) {
		from := histogramsAt + histogram*buckets
		seconds, ok := quantile(q, p.sums[from:from+buckets])
		return seconds * 1000, ok
	}
}

func level(i int) func(*point, int64) (float64, bool) {
	return func(p *point, _ int64) (float64, bool) { return float64(p.levels[i]), p.levels[i] != none }
}

// row returns the values of a step; of an unknown one if p is nil.
func (r *ring) row(number int64, p *point) []*float64 {
	row, at := make([]*float64, len(all)+1), float64(number*r.step)
	row[0] = &at
	if p == nil {
		return row
	}
	for i := range all {
		if v, ok := all[i].value(p, r.step); ok {
			v = math.Round(v*1000) / 1000
			row[i+1] = &v
		}
	}
	return row
}

// Reach returns how far back points with this step reach; 0 if no ring has this step.
func Reach(step Step) time.Duration {
	switch step {
	case Fine:
		return fineReach
	case Middle:
		return middleReach
	case Coarse:
		return coarseReach
	}
	return 0
}

// Finest returns the finest step that reaches as far back as since, or the coarsest.
func Finest(since time.Duration) Step {
	for _, step := range []Step{Fine, Middle} {
		if Reach(step) >= since {
			return step
		}
	}
	return Coarse
}

// Range returns all whole steps since this long ago. step must be one of the constants.
func (h *History) Range(since time.Duration, step Step) Table {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.rings[:], func(r *ring) bool { return r.step == time.Duration(step).Milliseconds() })
	r := h.rings[i]
	table := Table{StepMS: r.step, Columns: Columns(), Rows: [][]*float64{}}
	if h.now == 0 {
		return table
	}
	// While no report comes, the time goes on: what follows the last one is a gap.
	passed := h.now + time.Since(h.heard).Milliseconds() - 2*settleAfter.Milliseconds()
	end := max(h.ready, passed) / r.step
	first := max(end-min(int64(since/time.Duration(step)), int64(len(r.points))), 0)
	for n := first; n < end; n++ {
		table.Rows = append(table.Rows, r.row(n, r.get(n)))
	}
	return table
}

// Since returns the fine steps that are new or have changed since seq, and the seq to ask for next.
// With a seq of 0, or of another process, it returns all.
func (h *History) Since(seq uint64) (Table, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rings[0]
	if seq > h.seq {
		seq = 0
	}
	table := Table{StepMS: r.step, Columns: Columns(), Rows: [][]*float64{}}
	end := h.ready / r.step
	for n := max(end-int64(len(r.points)), 0); n < end; n++ {
		if p := r.get(n); p != nil && p.seq > seq {
			table.Rows = append(table.Rows, r.row(n, p))
		}
	}
	return table, h.seq
}
