package measure

import (
	"fmt"
	"time"
)

// Micros keeps three figures of a number of microseconds.
func Micros(us int64) string {
	switch ms := float64(us) / 1000; {
	case us < 1000:
		return fmt.Sprintf("%d us", us)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}

// Millis writes a number of milliseconds as Go does.
func Millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// Plural is "1 node" or "3 nodes".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Thousands writes 12345.6 as 12,346.
func Thousands[N int | float64](n N) string {
	digits := fmt.Sprintf("%.0f", float64(n))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Rounded keeps one decimal, so that a file does not suggest more.
func Rounded(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }
