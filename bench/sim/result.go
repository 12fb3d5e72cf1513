package sim

// Result is what a simulation tells. Times are in microseconds.
type Result struct {
	Config Config `json:"config"`
	Nodes  int    `json:"nodes"`
	Slots  int    `json:"slots"`
	Counts Counts `json:"counts"`
	// Seconds is the simulated time in which the jobs that count arrived.
	Seconds float64 `json:"seconds"`
	// Busy is the share of slots taken, on average over that time.
	Busy      float64 `json:"busy_share"`
	BatchMean float64 `json:"batch_mean"`
	// Delay is from a job's arrival to its slot, Ideal the same under the ideal central scheduler.
	Delay  Quantiles `json:"delay,omitempty"`
	Ideal  Quantiles `json:"ideal_delay,omitempty"`
	Spread Spread    `json:"spread"`
	// Leaks names what was not as it was before once all jobs had ended; none is right.
	Leaks []string `json:"leaks,omitempty"`
}

// Rate is the conflict rate: refused reservations of all that were tried, a node each.
func (r *Result) Rate() float64 { return share(r.Counts.Refused, r.Counts.Tried) }

// FirstRate is the share of calls whose first candidate was full.
func (r *Result) FirstRate() float64 { return share(r.Counts.FirstRefused, r.Counts.Calls) }

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (w *world) result() *Result {
	r := &Result{
		Config: *w.cfg, Nodes: len(w.cfg.Slots), Counts: w.tally.Counts, Seconds: seconds(w.tally.to - w.tally.from),
		BatchMean: share(w.tally.sentItems, w.tally.sentCalls),
		Delay:     quantiles(w.tally.delays), Ideal: quantiles(w.tally.ideal), Spread: w.spread.summary(),
	}
	for _, n := range w.truth.slots {
		r.Slots += int(n)
	}
	if r.Seconds > 0 {
		r.Busy = w.truth.area / float64(w.tally.to-w.tally.from) / float64(r.Slots)
	}
	r.Leaks = w.leaks()
	return r
}

// leaks looks for what must be back to nothing at the end.
func (w *world) leaks() []string {
	var found []string
	want := func(ok bool, what string) {
		if !ok {
			found = append(found, what)
		}
	}
	c := &w.tally.Counts
	want(c.Arrived == int64(w.cfg.Jobs) && c.Arrived == c.Assigned+c.Overloaded, "jobs that neither began nor were refused")
	want(c.Ended == w.tally.begun, "jobs that began and did not end")
	want(w.undecided == 0, "jobs that are undecided")
	want(w.truth.taken == 0, "slots that are taken")
	for i := range w.truth.used {
		if w.truth.used[i] != 0 || w.truth.running[i] != 0 {
			want(false, "nodes with slots in use")
			break
		}
	}
	for _, r := range w.replicas {
		for _, n := range r.views {
			if _, pending := n.Load(); pending != 0 {
				want(false, "views with pending slots")
				return found
			}
		}
	}
	return found
}
