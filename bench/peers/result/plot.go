package result

import (
	"cmp"
	"slices"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/plot"
)

// Plots are the pictures of the results, by the names of their files. A picture of what was not measured is
// left out.
func Plots(data []byte) (map[string][]byte, error) {
	r := new(Results)
	if err := measure.Decode(File, data, r); err != nil {
		return nil, err
	}
	var figures []*plot.Figure
	if len(r.Modes) > 0 {
		figures = append(figures, latencyFigure(&r.Modes[0]), throughputFigure(&r.Modes[0]))
	}
	if r.Scale != nil {
		figures = append(figures, nodesFigure(r.Scale))
	}
	out := make(map[string][]byte, len(figures))
	for _, f := range figures {
		svg, err := plot.SVG(f)
		if err != nil {
			return nil, err
		}
		out[f.Name+".svg"] = svg
	}
	return out, nil
}

// latencyFigure is the distribution of the time to result at half of the saturation.
func latencyFigure(m *Mode) *plot.Figure {
	f := &plot.Figure{
		Name: "peers-latency", Title: "Submit to result at 50 % of each one's saturation",
		X: plot.Axis{Label: "time to result, ms", Log: true}, Y: plot.Axis{Label: "share of jobs", Percent: true},
	}
	for _, e := range m.Entries {
		l := plot.Line{Name: e.Name}
		for _, r := range e.Rounds {
			for _, level := range r.Levels {
				if level.Share != 0.5 || len(level.Result.Curve) != len(load.Quantiles) {
					continue
				}
				for i, us := range level.Result.Curve {
					l.Points = append(l.Points, plot.Point{X: float64(us) / 1000, Y: load.Quantiles[i] / 100})
				}
			}
		}
		f.Lines = append(f.Lines, l)
	}
	return f
}

// throughputFigure has, for each number of jobs in flight, the best of the sweep.
func throughputFigure(m *Mode) *plot.Figure {
	f := &plot.Figure{
		Name: "peers-throughput", Title: "Throughput by jobs in flight, best setting of the sweep at each",
		X: plot.Axis{Label: "jobs in flight", Log: true}, Y: plot.Axis{Label: "jobs a second"},
	}
	for _, e := range m.Entries {
		best := make(map[int]float64)
		for _, p := range e.Sweep {
			best[p.InFlight] = max(best[p.InFlight], p.JobsPerSecond)
		}
		l := plot.Line{Name: e.Name}
		for n, rate := range best {
			l.Points = append(l.Points, plot.Point{X: float64(n), Y: rate})
		}
		sortPoints(l.Points)
		f.Lines = append(f.Lines, l)
	}
	return f
}

// nodesFigure is what a job costs Redis by the number of nodes.
func nodesFigure(s *Scale) *plot.Figure {
	f := &plot.Figure{
		Name: "peers-nodes", Title: "Redis time a job by number of nodes",
		X: plot.Axis{Label: "nodes", Log: true}, Y: plot.Axis{Label: "microseconds in EVALSHA and XREAD"},
	}
	for _, how := range []string{Alone, Saturated} {
		l := plot.Line{Name: how}
		for _, p := range s.Points {
			if p.What == "nodes" && p.Load == how && p.AwayUS == 0 && p.Error == "" {
				l.Points = append(l.Points, plot.Point{X: float64(p.Value), Y: p.RedisUs})
			}
		}
		sortPoints(l.Points)
		f.Lines = append(f.Lines, l)
	}
	return f
}

func sortPoints(p []plot.Point) {
	slices.SortFunc(p, func(a, b plot.Point) int { return cmp.Compare(a.X, b.X) })
}
