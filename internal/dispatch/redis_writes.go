package dispatch

import (
	"cmp"
	"fmt"
	"math/bits"
)

// refusing returns how many cells have a Redis that refuses writes, and why the first of them does.
func (d *Dispatcher) refusing() (cells int, reason string) {
	for _, c := range d.byCell {
		if refusal := *c.refusal.Load(); refusal != "" {
			cells, reason = cells+1, cmp.Or(reason, refusal)
		}
	}
	return cells, reason
}

// Writable reports for readiness whether, as far as is known, Redis takes writes. detail says why
// it does not, or which writes it refuses while the rest goes on.
func (d *Dispatcher) Writable() (ok bool, detail string) {
	refusing, reason := d.refusing()
	full := bits.OnesCount64(uint64(d.outOfMemory.load()))
	switch all := len(d.byCell); {
	case refusing == all:
		return false, "Redis refuses writes: " + reason
	case refusing > 0:
		return true, fmt.Sprintf("degraded: Redis refuses writes for %d of %d cells: %s", refusing, all, reason)
	case full > 0:
		return true, fmt.Sprintf("degraded: Redis is almost out of memory (OOM) for %d of %d cells: "+
			"submits are refused there as overloaded, all else goes on", full, all)
	default:
		return true, ""
	}
}
