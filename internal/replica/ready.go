package replica

import (
	"cmp"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/presence"
)

// checks read what is known; none of them asks Redis. The replica is ready while it serves a part
// of the fleet. The detail says what the rest lacks.
func (f *fleet) checks(present *presence.Presence) []api.Check {
	return []api.Check{
		{Name: "cache", Ready: func() (bool, string) {
			if !f.cache.Health().Synced {
				return false, "the nodes have not been loaded yet"
			}
			return true, ""
		}},
		{Name: "redis", Ready: func() (bool, string) { return redisReady(f.cache.Health()) }},
		{Name: "heartbeat_limit", Ready: present.Ready},
	}
}

func redisReady(h cache.Health) (ok bool, detail string) {
	var stale, away, untracked, unable, unsubscribed int
	refusal := ""
	for _, c := range h.Cells {
		refusal = cmp.Or(refusal, c.Refusal)
		if c.Stale {
			stale++
		}
		if c.Stale || c.Unreachable {
			away++
		}
		switch {
		case c.Untrackable:
			unable++
		case c.Untracked:
			untracked++
		}
		if c.Unsubscribed {
			unsubscribed++
		}
	}
	answered := "answered"
	if refusal != "" { // Redis answered, but refuses the calls
		answered, refusal = "answered this replica's questions", ", but says "+refusal
	}
	switch {
	case h.Synced && stale == len(h.Cells):
		return false, fmt.Sprintf("Redis has not %s for %s%s", answered, h.Age.Round(time.Second/10), refusal)
	case away > 0:
		return true, fmt.Sprintf(
			"degraded: %d of %d cells have not %s for up to %s%s", away, len(h.Cells), answered, h.Age.Round(time.Second/10),
			refusal,
		)
	case unsubscribed > 0:
		return true, fmt.Sprintf(
			"degraded: the events of %d of %d cells are not heard, for a reason that the log has; what changes is seen a "+
				"second later",
			unsubscribed, len(h.Cells),
		)
	case unable > 0:
		return true, fmt.Sprintf(
			"degraded: Redis cannot tell of edits made by hand (client-side caching) in %d of %d cells; such edits are seen "+
				"within a minute",
			unable, len(h.Cells),
		)
	case untracked > 0:
		return true, fmt.Sprintf("degraded: the connection that tells of edits made by hand in Redis (client-side "+
			"caching) is away for %d of %d cells; "+
			"such edits are seen once it is back", untracked, len(h.Cells))
	default:
		return true, ""
	}
}
