// Package plot draws lines and points as SVG.
package plot

import (
	"github.com/freeslot/freeslot/bench/sim"
	"github.com/freeslot/freeslot/bench/sim/draw"
)

type (
	// Figure is that of the simulations, without what they say of their runs.
	Figure = sim.Figure
	// Axis is one of a figure's two.
	Axis = sim.Axis
	// Line is one curve.
	Line = sim.Line
	// Point is one value of a curve.
	Point = sim.Point
)

// SVG draws a figure; see [draw.SVG].
func SVG(f *Figure) ([]byte, error) { return draw.SVG(f) }
