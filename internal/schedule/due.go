package schedule

import "github.com/freeslot/freeslot/internal/cron"

const (
	// maxWalk bounds how many runs are counted for a schedule that was not looked at for very long.
	// Beyond that, only runs of the last walkLast are counted.
	maxWalk  = 50_000
	walkLast = 30 * 24 * 60 * 60 * 1000 // ms; it has fewer runs
)

// decision says what to do about the runs that are due.
type decision struct {
	// runMS is the run to make; 0 means none.
	runMS int64
	// missed counts the runs before it that are left out. If there is no run to make, it counts
	// all.
	missed uint64
	// nextMS is the first run that is not due yet, if there is no run to make.
	nextMS int64
}

// due decides about the runs of a schedule from nextMS on. nextMS must be due.
func due(e *cron.Expression, s *Definition, nextMS, nowMS int64) decision {
	var last [MaxMissed]int64 // the last runs, in a ring
	count, at := uint64(0), nextMS
	if every := e.Every().Milliseconds(); every > 0 {
		if total := (nowMS - at) / every; total > MaxMissed {
			count = uint64(total - MaxMissed)
			at += (total - MaxMissed) * every
		}
	}
	for at != 0 && at <= nowMS {
		last[count%MaxMissed] = at
		if count++; count%maxWalk == 0 {
			at = max(at, nowMS-walkLast)
		}
		at = e.NextMS(at)
	}
	latest := last[(count-1)%MaxMissed]
	switch s.policy() {
	case All:
		made := min(count, MaxMissed)
		return decision{runMS: last[(count-made)%MaxMissed], missed: count - made}
	case Skip:
		if nowMS-latest > s.graceMS() {
			return decision{missed: count, nextMS: at}
		}
	}
	return decision{runMS: latest, missed: count - 1}
}
