package server

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/plural"
)

// lookedAt is the most locks that one look reads. Processes note the locks that they hold, so a
// lock whose process has died comes before them as its lease nears its end.
const lookedAt = 256

// unrenewed offers the locks that are held although this share of their lease has passed without a
// renewal; none if the share is 0. Holders renew after a third of the lease, by default.
func unrenewed(l locks, share float64) finding.Source {
	return finding.Source{Name: "locks", Look: func(ctx context.Context) ([]finding.Finding, error) {
		if share == 0 {
			return nil, nil
		}
		all, _, err := l.List(ctx, "", lookedAt)
		if err != nil {
			return nil, err
		}
		f := finding.Finding{
			ID: "locks.unrenewed", Severity: finding.Warning,
			Next: "schedctl lock show KEY shows holder and waiters; the holder has died, hangs or does not reach Redis, and " +
				"the lock is free when its lease is over",
		}
		count, waiting, first := 0, int64(0), ""
		for i := range all {
			s := &all[i]
			if s.Renewed.IsZero() || s.Revoked != "" || float64(s.Left) > (1-share)*float64(s.Lease) {
				continue
			}
			count, waiting = count+1, waiting+s.Waiting
			f.Names = append(f.Names, s.Key)
			if at := s.Renewed.Add(time.Duration(share * float64(s.Lease))).UnixMilli(); f.SinceMS == 0 || at < f.SinceMS {
				f.SinceMS, first = at, fmt.Sprintf("%q of %s, last %s ago", s.Key, s.Holder, (s.Lease-s.Left).Round(time.Second))
			}
		}
		if count == 0 {
			return nil, nil
		}
		f.Text = fmt.Sprintf("%s renewed, longest %s", plural.Of(count, "held lock is not", "held locks are not"), first)
		if waiting > 0 {
			f.Text += fmt.Sprintf("; %s for them", plural.Of(waiting, "process waits", "processes wait"))
		}
		return []finding.Finding{f}, nil
	}}
}
