package sim

import (
	"slices"

	"github.com/freeslot/freeslot/bench/measure"
)

// Results is the JSON file: the last run of each figure, and of each measured run that was simulated.
type Results struct {
	Figures    []Figure       `json:"figures"`
	Reproduced []Reproduction `json:"reproduced,omitempty"`
}

// Figure is a plot and the runs behind it.
type Figure struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	measure.Machine
	// Quick is true for a run that only shows that the figure can be made.
	Quick bool `json:"quick,omitempty"`
	// Method says in words what was simulated.
	Method []string `json:"method"`
	X      Axis     `json:"x"`
	Y      Axis     `json:"y"`
	Lines  []Line   `json:"lines"`
}

// Axis is the meaning of a coordinate.
type Axis struct {
	Label string `json:"label"`
	Log   bool   `json:"log,omitempty"`
	// Percent is true for shares, which are shown as such.
	Percent bool `json:"percent,omitempty"`
}

// Line is one curve. On a logarithmic axis points at 0 are not drawn.
type Line struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is one value; Run is the simulation that it comes from, given once where several do.
type Point struct {
	X   float64  `json:"x"`
	Y   float64  `json:"y"`
	Run *Summary `json:"run,omitempty"`
}

// Summary is what is kept of a simulation.
type Summary struct {
	Replicas  int     `json:"replicas"`
	Nodes     int     `json:"nodes"`
	Slots     int     `json:"slots"`
	Rate      float64 `json:"arrivals_per_second"`
	MeanMS    float64 `json:"mean_duration_ms"`
	Seconds   float64 `json:"seconds"`
	Busy      float64 `json:"busy_share"`
	Conflicts float64 `json:"conflict_rate"`
	FirstRate float64 `json:"first_choice_conflict_rate"`
	BatchMean float64 `json:"batch_mean"`
	Counts    Counts  `json:"counts"`
	Spread    Spread  `json:"spread"`
	// Leaks is Result's.
	Leaks []string `json:"leaks,omitempty"`
}

// Summary is what a results file keeps of r.
func (r *Result) Summary() *Summary {
	return &Summary{
		Replicas: r.Config.Replicas, Nodes: r.Nodes, Slots: r.Slots, Rate: r.Config.Rate,
		MeanMS: r.Config.MeanDuration.Seconds() * 1000, Seconds: r.Seconds, Busy: r.Busy,
		Conflicts: r.Rate(), FirstRate: r.FirstRate(), BatchMean: r.BatchMean,
		Counts: r.Counts, Spread: r.Spread, Leaks: r.Leaks,
	}
}

// Put replaces the figure of that name, or adds it.
func (r *Results) Put(f Figure) {
	i := slices.IndexFunc(r.Figures, func(have Figure) bool { return have.Name == f.Name })
	if i < 0 {
		r.Figures = append(r.Figures, f)
		return
	}
	r.Figures[i] = f
}

// Faults counts the jobs that were begun beyond a node's slots, and the runs that left something behind. Both
// must be 0.
func (f *Figure) Faults() (overCommits int64, leaks int) {
	for _, l := range f.Lines {
		for _, p := range l.Points {
			if p.Run == nil {
				continue
			}
			overCommits += p.Run.Counts.OverCommits
			if len(p.Run.Leaks) > 0 {
				leaks++
			}
		}
	}
	return overCommits, leaks
}
