package demand

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/freeslot/freeslot/internal/dispatch"
)

const (
	// busiest is how many kinds a replica tells of.
	busiest = 1000
	// mostMetered bounds the kinds of a meter. Those beyond are not counted until others fall silent.
	mostMetered = 10_000
)

// Told is what a replica says of the jobs of one kind. All figures are per second.
type Told struct {
	Pool    string `json:"p,omitempty"`
	Service string `json:"s,omitempty"`
	// Came counts accepted jobs, and Slots adds up their slots.
	Came  float64 `json:"c,omitempty"`
	Slots float64 `json:"n,omitempty"`
	// Ended counts the jobs whose run time is known, and Ran adds up their seconds.
	Ended float64 `json:"e,omitempty"`
	Ran   float64 `json:"r,omitempty"`
}

// Meter counts the jobs of a replica by kind. Came and Ran are safe for concurrent use; Take is for
// one caller.
type Meter struct {
	kinds   *xsync.MapOf[dispatch.Kind, *counts]
	now     func() time.Time
	takenAt time.Time
}

// counts counts the jobs of a kind. ran is in milliseconds.
type counts struct {
	came, slots, ended, ran atomic.Uint64
	last                    [4]uint64 // what Take has seen
}

// NewMeter makes a meter.
func NewMeter() *Meter {
	return &Meter{kinds: xsync.NewMapOf[dispatch.Kind, *counts](), now: time.Now, takenAt: time.Now()}
}

// Came counts an accepted job.
func (m *Meter) Came(k dispatch.Kind, slots int) {
	if c := m.of(k); c != nil {
		c.came.Add(1)
		c.slots.Add(uint64(max(slots, 0)))
	}
}

// Ran counts a job that ran for this long.
func (m *Meter) Ran(k dispatch.Kind, took time.Duration) {
	if c := m.of(k); c != nil {
		c.ended.Add(1)
		c.ran.Add(uint64(max(took.Milliseconds(), 0)))
	}
}

// of returns nil if there are too many kinds.
func (m *Meter) of(k dispatch.Kind) *counts {
	if c, known := m.kinds.Load(k); known {
		return c
	}
	if m.kinds.Size() >= mostMetered {
		return nil
	}
	c, _ := m.kinds.LoadOrCompute(k, func() *counts { return new(counts) })
	return c
}

// Take returns the rates since the last call of the busiest kinds, the busiest first. It forgets
// kinds that were silent since then.
func (m *Meter) Take() []Told {
	now := m.now()
	seconds := now.Sub(m.takenAt).Seconds()
	m.takenAt = now
	var all []Told
	m.kinds.Range(func(k dispatch.Kind, c *counts) bool {
		is := [4]uint64{c.came.Load(), c.slots.Load(), c.ended.Load(), c.ran.Load()}
		if is == c.last {
			// A job that is counted right now in the entry that goes is left out of the next rate.
			m.kinds.Delete(k)
			return true
		}
		var rate [4]float64
		for i := range is {
			rate[i] = float64(is[i]-c.last[i]) / seconds
		}
		if seconds > 0 {
			all = append(all, Told{
				Pool: k.Pool, Service: k.Service, Came: rate[0], Slots: rate[1], Ended: rate[2], Ran: rate[3] / 1000,
			})
		}
		c.last = is
		return true
	})
	slices.SortFunc(all, func(a, b Told) int {
		return cmp.Or(
			cmp.Compare(b.Came+b.Ended, a.Came+a.Ended), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Service, b.Service),
		)
	})
	return all[:min(len(all), busiest)]
}
