package beat

import "time"

// Is reports whether the process has a beat at this time.
func Is(at time.Time) bool {
	since := time.Duration(at.UnixNano()) + own.phase()
	n := (since + Period/2) / Period
	return n*Period+own.offset(n) == since
}
