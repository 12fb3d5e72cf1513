package source

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/plural"
)

// Findings offers the lists whose last run has no result that serves, and the lists whose run has
// been due for longer than late and was begun by no replica. Replicas do not know each other's
// sources, so the second one also holds while all replicas that have the source are busy. A run
// whose replica died is due when its lease is over. serving returns the number of the version that
// a list serves, without asking.
func Findings(s *Store, late time.Duration, serving func(list string) int64) finding.Source {
	return finding.Source{Name: "list sources", Look: func(ctx context.Context) ([]finding.Finding, error) {
		lists, all, err := s.All(ctx)
		if err != nil || len(lists) == 0 {
			return nil, err
		}
		nowMS, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		failing := finding.Gathered{Finding: finding.Finding{
			ID: "lists.sources", Severity: finding.Warning,
			Next: "schedctl lists source show LIST shows the last runs; mend the source, accept the version, " +
				"or approve its switch",
		}}
		waits := finding.Gathered{Finding: finding.Finding{
			ID: "lists.sources_late", Severity: finding.Warning,
			Next: "put the source below lists.sources of a running replica, or `schedctl lists source unset LIST`; " +
				"a replica that has it makes two runs at a time",
		}}
		for i := range lists {
			a := &all[i]
			if at := a.dueMS(); at > 0 && at <= nowMS-late.Milliseconds() {
				waits.Add(lists[i], at, lists[i]+" from "+a.Source)
			}
			if len(a.Runs) == 0 {
				continue
			}
			last := &a.Runs[0]
			if last.Result == Held && last.Version > 0 && serving(lists[i]) >= last.Version {
				continue
			}
			if last.Result != Served && last.Result != Unchanged {
				failing.Add(lists[i], last.AtMS, lists[i]+" "+string(last.Result)+": "+last.Why)
			}
		}
		failing.Text = plural.Of(failing.Count, "list has", "lists have") + " no new version from the source; " +
			failing.Oldest
		waits.Text = "no running replica has begun the run that is due of " +
			plural.Of(waits.Count, "list", "lists") + "; longest " + waits.Oldest
		return finding.Findings(&failing, &waits), nil
	}}
}
