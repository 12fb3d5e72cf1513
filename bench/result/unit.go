package result

import (
	"fmt"
	"math"

	"github.com/freeslot/freeslot/bench/measure"
)

// Unit is what a value counts.
type Unit string

// The units.
const (
	Nanoseconds  Unit = "ns"
	Microseconds Unit = "us"
	Milliseconds Unit = "ms"
	Percent      Unit = "%"
	Times        Unit = "x"
	PerSecond    Unit = "/s"
	MiB          Unit = "MiB"
	MB           Unit = "MB"
	Bytes        Unit = "B"
	Seconds      Unit = "s"
	Number       Unit = ""
)

// words writes a value for readers, to three figures or so.
func (u Unit) words(v float64) string {
	if u == Microseconds && math.Abs(v) >= 1000 {
		u, v = Milliseconds, v/1000
	}
	var text string
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1000, math.Abs(v) >= 1000:
		text = measure.Thousands(v)
	case math.Abs(v) >= 100:
		text = fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		text = fmt.Sprintf("%.1f", v)
	case math.Abs(v) >= 0.01:
		text = fmt.Sprintf("%.2f", v)
	default:
		text = fmt.Sprintf("%.2g", v)
	}
	switch u {
	case Number:
		return text
	case Times, PerSecond:
		return text + string(u)
	default:
		return text + " " + string(u)
	}
}
