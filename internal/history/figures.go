package history

import (
	"encoding/binary"
	"errors"
	"sort"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/freeslot/freeslot/internal/script"
)

// The counters of a replica. The system's value is their sum.
const (
	Placed  = iota // jobs that got a slot when they were submitted
	Queued         // jobs that had to wait
	Refused        // jobs that were refused
	CPU            // processor time of the replica, microseconds
	counters
)

// The counters that every replica reads in Redis, so each has the system's value.
const (
	Ended = iota // jobs that ended
	Dead
	Failed
	Cancelled
	Expired
	Retries // attempts that failed or were lost and were followed by another one
	ends
)

// The gauges that every replica sees for the whole system. Unknown means no value.
const (
	Waiting     = iota
	Held        // jobs that a limit holds back
	OldestWait  // milliseconds
	SlotsUsed   // slots of nodes that are not silent
	SlotsTotal  // the same
	NodesOnline // nodes that are neither silent nor draining
	NodesDrain  // nodes that drain and are not silent
	NodesSilent // nodes without a sign of life
	RedisMemory // bytes, of all servers
	gauges
)

// The histograms of a replica. The system's value is their sum.
const (
	Assign      = iota // time from a submit to its assignment, of jobs that did not wait
	RedisCall          // time of a call to Redis
	EventsDelay        // time from a node's change to its application in the cache
	histograms
)

// Unknown is the value of a gauge that a replica does not know.
const Unknown = -1

// buckets is the number of buckets of each histogram. The last one has no upper bound.
const buckets = 22

// bounds holds the upper bounds of the other buckets, in seconds.
var bounds = script.LatencyBuckets

// Buckets holds how many observations fell into each bucket of script.LatencyBuckets, and above.
type Buckets [buckets]uint64

// Figures is what one replica reports.
type Figures struct {
	// StartMS is when the replica started, in milliseconds since 1970. Counters begin then.
	StartMS int64
	// Keeps is true if the replica keeps the history, and so may write it down.
	Keeps bool
	// Cells counts the cells that Ends and Gauges cover, 0 if none answers. The fields below are
	// then unknown.
	Cells    int
	Counters [counters]uint64
	Ends     [ends]uint64
	// States is true if Ends holds more than Ended, as from this release on.
	States bool
	// Gauges holds Unknown for a value that is not known.
	Gauges [gauges]int64
	// Memory is the replica's memory in bytes, Unknown if it is not known.
	Memory     int64
	Histograms [histograms]Buckets
}

// version is the first byte of encoded figures.
const version = 1

// keeps is the flag for Keeps.
const keeps = 1

const (
	maxBytes = 8 << 10 // of encoded figures
	maxGroup = 64      // values of a group
)

// errForeign is returned for figures that this release cannot read.
var errForeign = errors.New("history: figures of another release")

// Encode returns the figures as a short binary text.
func (f *Figures) Encode() string {
	b := binary.AppendUvarint([]byte{version}, uint64(f.StartMS))
	flags := uint64(0)
	if f.Keeps {
		flags = keeps
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, flags), uint64(f.Cells))
	b = appendGroup(b, f.Counters[:])
	if f.States {
		b = appendGroup(b, f.Ends[:])
	} else {
		b = appendGroup(b, f.Ends[:Dead])
	}
	known := make([]uint64, 0, gauges+1)
	for _, v := range append(f.Gauges[:], f.Memory) {
		known = append(known, uint64(max(v, Unknown)+1))
	}
	b = appendGroup(b, known[:gauges])
	b = appendGroup(b, known[gauges:])
	for i := range f.Histograms {
		b = appendGroup(b, f.Histograms[i][:])
	}
	return string(b)
}

func appendGroup(b []byte, values []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// Decode reads encoded figures. A later release may append values to a group, and groups: they are
// left out. What it does not send is 0, or unknown. A histogram with other buckets is empty.
func Decode(text string) (f Figures, err error) {
	if len(text) == 0 || len(text) > maxBytes || text[0] != version {
		return f, errForeign
	}
	r := reader{rest: []byte(text[1:])}
	f.StartMS, f.Keeps, f.Cells = int64(r.next()), r.next()&keeps != 0, int(r.next())
	r.group(f.Counters[:])
	f.States = r.group(f.Ends[:]) >= ends
	var known [gauges]uint64
	var memory [1]uint64
	r.group(known[:])
	r.group(memory[:])
	for i, v := range known {
		f.Gauges[i] = int64(v) - 1
	}
	f.Memory = int64(memory[0]) - 1
	for i := range f.Histograms {
		if b := &f.Histograms[i]; r.group(b[:]) != buckets {
			*b = Buckets{}
		}
	}
	if r.bad || f.StartMS < 0 || f.Cells < 0 {
		return Figures{}, errForeign
	}
	return f, nil
}

// reader reads groups. bad is true once one could not be read; the text may end before a group.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) next() uint64 {
	if len(r.rest) == 0 || r.bad {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > 1<<62 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// group fills into with the next group, and returns how many values that has.
func (r *reader) group(into []uint64) (n int) {
	n = int(r.next())
	if n > maxGroup {
		r.bad = true
		return n
	}
	for i := range n {
		if len(r.rest) == 0 {
			r.bad = true
		}
		if v := r.next(); i < len(into) {
			into[i] = v
		}
	}
	return n
}

// ReadBuckets adds the observations of h, whose bounds must be script.LatencyBuckets, to b.
func (b *Buckets) ReadBuckets(h prometheus.Metric) {
	var m dto.Metric
	if h.Write(&m) != nil {
		return
	}
	before := uint64(0)
	for i, bucket := range m.Histogram.GetBucket() {
		b[i] += bucket.GetCumulativeCount() - before
		before = bucket.GetCumulativeCount()
	}
	b[buckets-1] += m.Histogram.GetSampleCount() - before
}

// quantile returns the q-quantile in seconds: within a bucket observations count as evenly spread,
// and above all bounds as the highest bound. ok is false without an observation.
func quantile(q float64, b []float32) (seconds float64, ok bool) {
	cumulative := make([]float64, len(b))
	sum := 0.0
	for i, n := range b {
		sum += float64(n)
		cumulative[i] = sum
	}
	if sum <= 0 {
		return 0, false
	}
	rank := q * sum
	i := sort.SearchFloat64s(cumulative, rank)
	if i >= len(bounds) {
		return bounds[len(bounds)-1], true
	}
	low, below := 0.0, 0.0
	if i > 0 {
		low, below = bounds[i-1], cumulative[i-1]
	}
	return low + (bounds[i]-low)*(rank-below)/(cumulative[i]-below), true
}
