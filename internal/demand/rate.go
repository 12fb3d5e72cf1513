package demand

import (
	"math"
	"time"

	"github.com/freeslot/freeslot/internal/dispatch"
)

const (
	// arrivalSpan is over about how long the rate of arrivals is averaged. It is short, because more
	// arrivals need more slots soon.
	arrivalSpan = time.Minute
	// runSpan is over about how long run times and the slots of a job are averaged.
	runSpan = 5 * time.Minute
	// mostKinds bounds the kinds whose rates are kept.
	mostKinds = 4096
	// forgotten is the number of jobs, weighted by age, below which a silent kind is forgotten.
	forgotten = 1e-3
)

// rates keeps averages of one kind of jobs. The older a job is, the less it weighs.
type rates struct {
	// arrivals is the rate of accepted jobs, per second.
	arrivals float64
	// came and slots add up accepted jobs and their slots; ended and ran the jobs whose run time is
	// known, and their seconds.
	came, slots, ended, ran float64
}

// add adds what came in the time since the last call.
func (r *rates) add(t Told, since time.Duration) {
	seconds, keep := since.Seconds(), decay(since, runSpan)
	r.arrivals += (t.Came - r.arrivals) * (1 - decay(since, arrivalSpan))
	r.came, r.slots = r.came*keep+t.Came*seconds, r.slots*keep+t.Slots*seconds
	r.ended, r.ran = r.ended*keep+t.Ended*seconds, r.ran*keep+t.Ran*seconds
}

// slotsPerJob returns the mean slots of a job; 1 if none is known.
func (r *rates) slotsPerJob() float64 {
	if r.came <= 0 {
		return 1
	}
	return max(r.slots/r.came, 1)
}

// run returns the mean run time in seconds; 0 if none is known.
func (r *rates) run() float64 {
	if r.ended <= 0 {
		return 0
	}
	return r.ran / r.ended
}

func decay(since, span time.Duration) float64 { return math.Exp(-since.Seconds() / span.Seconds()) }

// observe adds what all replicas told to the averages.
func observe(all map[dispatch.Kind]*rates, told map[dispatch.Kind]Told, since time.Duration) {
	for k := range told {
		if all[k] == nil && len(all) < mostKinds {
			all[k] = new(rates)
		}
	}
	for k, r := range all {
		r.add(told[k], since)
		if _, there := told[k]; !there && r.came+r.ended < forgotten {
			delete(all, k)
		}
	}
}

// starts keeps how many slots of a pool began to be used. The older a start is, the less it weighs.
type starts struct {
	// used adds up slots in use times seconds, begun the slots that began to be used.
	used, begun float64
	waiting     float64 // slots of the jobs that waited at the last call
}

// add adds the time since the last call. used and waiting are the slots now, arrivals the slots of
// arriving jobs per second.
func (s *starts) add(used, waiting, arrivals float64, since time.Duration) {
	seconds, keep := since.Seconds(), decay(since, runSpan)
	s.used = s.used*keep + used*seconds
	s.begun = s.begun*keep + arrivals*seconds - (waiting - s.waiting)
	s.waiting = waiting
}

// run returns the mean run time of the jobs of a pool in seconds; 0 if it is not known. By Little's
// law it is the mean number of slots in use divided by the slots that begin to be used per second.
func (s *starts) run(jobs *rates) float64 {
	if jobs.ended > 0 && jobs.ended >= jobs.came/2 || s.used <= 0 || s.begun < forgotten {
		return jobs.run()
	}
	return s.used / s.begun
}
