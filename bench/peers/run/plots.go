package main

import (
	"cmp"
	"slices"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/plot"
)

// plots draws the time to result at half of the saturation, and the throughput by jobs in flight.
func (b *bench) plots(all []*contender) {
	latency := &plot.Figure{
		Title: "Submit to result at 50 % of each one's saturation",
		X:     plot.Axis{Label: "time to result, ms", Log: true}, Y: plot.Axis{Label: "share of jobs", Percent: true},
	}
	throughput := &plot.Figure{
		Title: "Throughput by jobs in flight, best setting of the sweep at each",
		X:     plot.Axis{Label: "jobs in flight", Log: true}, Y: plot.Axis{Label: "jobs a second"},
	}
	for _, c := range all {
		latency.Lines = append(latency.Lines, plot.Line{Name: c.name, Points: c.curve()})
		best := make(map[int]float64)
		for _, p := range c.sweep {
			best[p.inFlight] = max(best[p.inFlight], p.jobsPerSecond)
		}
		throughput.Lines = append(throughput.Lines, plot.Line{Name: c.name, Points: pointsOf(best)})
	}
	b.Draw("peers-latency.svg", latency)
	b.Draw("peers-throughput.svg", throughput)
}

// curve is the distribution at half of the saturation of the round in the middle, by its time to
// result.
func (c *contender) curve() []plot.Point {
	var times []load.Times
	for _, r := range c.rounds {
		for _, l := range r.levels {
			if l.share == 0.5 && l.Result.Curve != nil {
				times = append(times, l.Result)
			}
		}
	}
	if len(times) == 0 {
		return nil
	}
	slices.SortFunc(times, func(a, z load.Times) int { return cmp.Compare(a.P50, z.P50) })
	var points []plot.Point
	for i, us := range times[(len(times)-1)/2].Curve {
		points = append(points, plot.Point{X: float64(us) / 1000, Y: load.Quantiles[i] / 100})
	}
	return points
}

// pointsOf are points in the order of x.
func pointsOf(values map[int]float64) []plot.Point {
	var points []plot.Point
	for x, y := range values {
		points = append(points, plot.Point{X: float64(x), Y: y})
	}
	slices.SortFunc(points, func(a, z plot.Point) int { return cmp.Compare(a.X, z.X) })
	return points
}
