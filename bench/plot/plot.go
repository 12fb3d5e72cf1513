// Package plot draws lines and points as SVG.
package plot

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
)

// The size of a plot.
const (
	width  = 8 * vg.Inch
	height = 5 * vg.Inch
)

// colours differ for readers who do not see all colours, too (Okabe and Ito); black is the last.
var colours = []color.Color{
	color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 230, G: 159, B: 0, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255},
	color.RGBA{R: 213, G: 94, B: 0, A: 255},
	color.RGBA{R: 204, G: 121, B: 167, A: 255},
	color.RGBA{R: 86, G: 180, B: 233, A: 255},
	color.RGBA{A: 255},
}

// Figure is a plot.
type Figure struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// Axis is the meaning of a coordinate. Percent: values are shares, and are labelled as percentages.
type Axis struct {
	Label        string
	Log, Percent bool
}

// Line is one curve.
type Line struct {
	Name   string
	Points []Point
}

// Point is one value of a curve.
type Point struct{ X, Y float64 }

// SVG draws a figure. Points that a logarithmic axis cannot show, at 0 or below, are left out. The
// same figure gives the same bytes.
func SVG(f *Figure) ([]byte, error) {
	p, err := newPlot(f)
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(width, height)
	p.Draw(vgdraw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("plot %q: %w", f.Title, err)
	}
	return b.Bytes(), nil
}

func newPlot(f *Figure) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = f.Title
	p.Add(plotter.NewGrid())
	p.Legend.Padding = vg.Points(3)
	for i, l := range f.Lines {
		if err := addLine(p, f, l, i); err != nil {
			return nil, fmt.Errorf("plot %q: line %q: %w", f.Title, l.Name, err)
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

// corner is the one with the fewest points under the legend.
func corner(p *plot.Plot, f *Figure) (left, top bool) {
	least := math.MaxInt
	for _, c := range []struct{ left, top bool }{{false, true}, {false, false}, {true, false}, {true, true}} {
		count := 0
		for _, l := range f.Lines {
			for _, q := range l.Points {
				if !shown(f, q) {
					continue
				}
				x, y := p.X.Norm(q.X), p.Y.Norm(q.Y)
				if (c.left && x < legendWidth || !c.left && x > 1-legendWidth) && (c.top && y > 1-legendHeight || !c.top && y < legendHeight) {
					count++
				}
			}
		}
		if count < least {
			least, left, top = count, c.left, c.top
		}
	}
	return left, top
}

// shown reports whether the axes can show a point.
func shown(f *Figure, q Point) bool {
	return !(f.X.Log && q.X <= 0 || f.Y.Log && q.Y <= 0)
}

func addLine(p *plot.Plot, f *Figure, l Line, index int) error {
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

func scale(a *plot.Axis, how Axis) {
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
type ticks struct{ axis Axis }

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
