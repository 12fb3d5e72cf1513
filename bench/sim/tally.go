package sim

import "slices"

// Counts are what happened to the jobs that count, except Ended, OverCommits and those after it, which are of
// the whole run.
type Counts struct {
	Arrived  int64 `json:"arrived"`
	Assigned int64 `json:"assigned"`
	// Waited counts jobs that were assigned only after they had waited in Redis.
	Waited int64 `json:"waited"`
	// Overloaded counts jobs that were refused for good.
	Overloaded int64 `json:"overloaded"`
	// Calls counts jobs offered in calls: once for each round of each job.
	Calls int64 `json:"calls"`
	// Tried counts the nodes at which the script looked, Refused those that were full: the conflicts.
	Tried   int64 `json:"tried"`
	Refused int64 `json:"refused"`
	// ProbeTried and ProbeRefused are the part of Tried and Refused that is of jobs which found all nodes full and
	// offered themselves to some that seemed so. In a fleet that is full it is nearly all of them.
	ProbeTried   int64 `json:"probe_tried"`
	ProbeRefused int64 `json:"probe_refused"`
	// FirstRefused counts calls whose first candidate was full, AllRefused those whose every candidate was.
	FirstRefused int64 `json:"first_refused"`
	AllRefused   int64 `json:"all_refused"`
	// Rounds[i] counts jobs that were assigned in the round i+1.
	Rounds []int64 `json:"rounds"`

	// Ended counts jobs that completed, in the whole run; those of the prefill included.
	Ended int64 `json:"ended"`
	// OverCommits counts jobs begun beyond a node's slots; anything but 0 is a defect.
	OverCommits int64 `json:"over_commits"`
	Heartbeats  int64 `json:"heartbeats"`
	Lost        int64 `json:"lost_events"`
	Resyncs     int64 `json:"resyncs"`
}

type tally struct {
	Counts
	begun     int64 // jobs that took a slot, in the whole run
	from, to  int64 // the window
	sentCalls int64
	sentItems int64
	delays    []int64 // of the jobs that count, from arrival to slot
	ideal     []int64
}

func newTally(cfg *Config) *tally {
	return &tally{
		Counts: Counts{Rounds: make([]int64, cfg.Rounds)},
		delays: make([]int64, 0, cfg.Jobs), ideal: make([]int64, 0, cfg.Jobs),
	}
}

func (t *tally) arrived(p *placing, ideal int64) {
	if p.measured {
		t.Arrived++
		t.ideal = append(t.ideal, ideal)
	}
}

// sent counts a call of the script.
func (t *tally) sent(c *call) {
	t.sentCalls++
	t.sentItems += int64(len(c.items))
}

// call counts one job's part in a call.
func (t *tally) call(p *placing) {
	if !p.measured {
		return
	}
	t.Calls++
	tried, refused := int64(len(p.candidates)), int64(len(p.candidates))
	if p.assigned >= 0 {
		tried, refused = int64(p.assigned)+1, int64(p.assigned)
		t.Rounds[p.rounds-1]++
	} else {
		t.AllRefused++
	}
	t.Tried += tried
	t.Refused += refused
	if p.probing {
		t.ProbeTried += tried
		t.ProbeRefused += refused
	}
	if refused > 0 {
		t.FirstRefused++
	}
}

// started counts a job that has its slot.
func (t *tally) started(p *placing, now int64) {
	t.begun++
	if !p.measured {
		return
	}
	t.Assigned++
	if p.assigned < 0 {
		t.Waited++
	}
	t.delays = append(t.delays, now-p.job.at)
}

func (t *tally) overloaded(p *placing) {
	if p.measured {
		t.Overloaded++
	}
}

// shares are the points at which distributions of waiting times are kept.
var shares = []float64{
	0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.985, 0.99,
	0.9925, 0.995, 0.9975, 0.999, 0.9995, 0.9999, 1,
}

// quantiles summarises times in nanoseconds, which it sorts.
func quantiles(times []int64) Quantiles {
	if len(times) == 0 {
		return nil
	}
	slices.Sort(times)
	q := make(Quantiles, len(shares))
	for i, at := range shares {
		q[i] = Quantile{At: at, US: float64(times[int(at*float64(len(times)-1))]) / 1000}
	}
	return q
}
