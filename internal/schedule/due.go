package schedule

const (
	// maxWalk is how many runs of a schedule that was not looked at for very long are
	// counted before those of the time up to walkLast ago are left out of the count.
	maxWalk  = 50_000
	walkLast = 30 * 24 * 60 * 60 * 1000 // ms, in which there are fewer
)

// decision is what to do about the runs that are due.
type decision struct {
	// runMS is the run to be made; 0 is none.
	runMS int64
	// missed is how many runs before it, or all with none to be made, are left out.
	missed uint64
	// nextMS is the first run that is not due, where none is to be made.
	nextMS int64
}

// due decides about the runs of a schedule from nextMS on, which is due.
func due(e *Expression, s *Definition, nextMS, nowMS int64) decision {
	var last [MaxMissed]int64 // the last runs, in a ring
	count, at := uint64(0), nextMS
	if every := e.every.Milliseconds(); every > 0 {
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
