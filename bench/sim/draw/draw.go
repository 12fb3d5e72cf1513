// Package draw makes the plots of the simulations' figures.
package draw

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/freeslot/freeslot/bench/sim"
)

// The size of a plot.
const (
	width  = 8 * vg.Inch
	height = 5 * vg.Inch
)

// colours are told apart by readers who do not see all colours (Okabe and Ito); black is the last.
var colours = []color.Color{
	color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 230, G: 159, B: 0, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255},
	color.RGBA{R: 213, G: 94, B: 0, A: 255},
	color.RGBA{R: 204, G: 121, B: 167, A: 255},
	color.RGBA{R: 86, G: 180, B: 233, A: 255},
	color.RGBA{A: 255},
}

// SVG draws a figure. Points that a logarithmic axis cannot show, at 0 or below, are left out. The same figure
// gives the same bytes.
func SVG(f *sim.Figure) ([]byte, error) {
	p, err := newPlot(f)
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(width, height)
	p.Draw(vgdraw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("plot %s: %w", f.Name, err)
	}
	return b.Bytes(), nil
}

func newPlot(f *sim.Figure) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = f.Title
	p.Add(plotter.NewGrid())
	p.Legend.Padding = vg.Points(3)
	for i, l := range f.Lines {
		if err := addLine(p, f, l, i); err != nil {
			return nil, fmt.Errorf("plot %s: line %q: %w", f.Name, l.Name, err)
		}
	}
	p.X.Label.Text, p.Y.Label.Text = f.X.Label, f.Y.Label
	scale(&p.X, f.X)
	scale(&p.Y, f.Y)
	p.Legend.Left, p.Legend.Top = corner(p, f)
	return p, nil
}

// The part of the plot that a legend takes, at most or so.
const (
	legendWidth  = 0.45
	legendHeight = 0.4
)

// corner is where the fewest points are under the legend.
func corner(p *plot.Plot, f *sim.Figure) (left, top bool) {
	var counts [2][2]int // by left and top
	for _, l := range f.Lines {
		for _, q := range l.Points {
			if !shown(f, q) {
				continue
			}
			x, y := p.X.Norm(q.X), p.Y.Norm(q.Y)
			for i, isLeft := range []bool{false, true} {
				for k, isTop := range []bool{false, true} {
					across, along := x > 1-legendWidth, y < legendHeight
					if isLeft {
						across = x < legendWidth
					}
					if isTop {
						along = y > 1-legendHeight
					}
					if across && along {
						counts[i][k]++
					}
				}
			}
		}
	}
	best := counts[0][1]
	top = true
	for i := range counts {
		for k := range counts[i] {
			if counts[i][k] < best {
				best, left, top = counts[i][k], i == 1, k == 1
			}
		}
	}
	return left, top
}

// shown reports whether the axes can show a point.
func shown(f *sim.Figure, q sim.Point) bool {
	return !(f.X.Log && q.X <= 0 || f.Y.Log && q.Y <= 0)
}

func addLine(p *plot.Plot, f *sim.Figure, l sim.Line, index int) error {
	points := make(plotter.XYs, 0, len(l.Points))
	for _, q := range l.Points {
		if shown(f, q) {
			points = append(points, plotter.XY{X: q.X, Y: q.Y})
		}
	}
	if len(points) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, dots.Color = colours[index%len(colours)], colours[index%len(colours)]
	line.Width = vg.Points(1.5)
	line.Dashes = plotDashes[index/len(colours)%len(plotDashes)]
	dots.Shape, dots.Radius = vgdraw.CircleGlyph{}, vg.Points(2.5)
	p.Add(line, dots)
	p.Legend.Add(l.Name, line, dots)
	return nil
}

var plotDashes = [][]vg.Length{nil, {vg.Points(4), vg.Points(2)}}

func scale(a *plot.Axis, how sim.Axis) {
	a.Tick.Marker = ticks{how}
	if !how.Log {
		a.Min = min(a.Min, 0)
		return
	}
	if !(a.Min > 0) || math.IsInf(a.Max, 0) || a.Max <= a.Min { // no points, or one
		a.Min, a.Max = 0.1, 10
	}
	a.Scale = plot.LogScale{}
}

// ticks writes shares as percentages, and small and large figures as they are.
type ticks struct{ axis sim.Axis }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	var all []plot.Tick
	if t.axis.Log {
		all = logTicks(low, high)
	} else {
		all = plot.DefaultTicks{}.Ticks(low, high)
	}
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = t.label(all[i].Value)
		}
	}
	return all
}

func (t ticks) label(v float64) string {
	if t.axis.Percent {
		return fmt.Sprintf("%.4g %%", v*100)
	}
	return fmt.Sprintf("%.6g", v)
}

// logTicks has a label at each power of ten, and at 2 and 5 times it where the axis is short.
func logTicks(low, high float64) []plot.Tick {
	var all []plot.Tick
	short := high/low < 300
	for power := math.Floor(math.Log10(low)); power <= math.Ceil(math.Log10(high)); power++ {
		for digit := 1.0; digit < 10; digit++ {
			v := digit * math.Pow(10, power)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			tick := plot.Tick{Value: v}
			if digit == 1 || short && (digit == 2 || digit == 5) || high/low < 10 {
				tick.Label = "x"
			}
			all = append(all, tick)
		}
	}
	return all
}
