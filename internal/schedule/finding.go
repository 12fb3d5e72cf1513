package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// lookedAt is the most schedules that one look reads.
const lookedAt = 1000

// findings offers the schedules whose last run could not be made, and the schedules that left out
// runs within the time missed; 0 turns the second one off. Paused schedules do not count.
func findings(s *Service, missed time.Duration) finding.Source {
	return finding.Source{Name: "schedules", Look: func(ctx context.Context) ([]finding.Finding, error) {
		failing := finding.Gathered{Finding: finding.Finding{
			ID: "schedules.failing", Severity: finding.Warning,
			Next: "schedctl schedules get NAME shows the error and the next run; mend the job, or pause the schedule",
		}}
		late := finding.Gathered{Finding: finding.Finding{
			ID: "schedules.missed", Severity: finding.Warning,
			Next: "no replica ran, or Redis was away, when the runs were due; schedctl schedules get NAME shows on_missed, " +
				"which says what is made up for, and schedctl schedules run NAME makes a run now",
		}}
		cursor := ""
		for range lookedAt / MaxPage {
			page, err := s.List(ctx, "", cursor, MaxPage)
			if err != nil {
				return nil, err
			}
			for i := range page.Schedules {
				one := &page.Schedules[i]
				if one.Paused {
					continue
				}
				name, who := one.Tenant+"/"+one.Name, one.Name+" of tenant "+one.Tenant+": "
				if one.LastError != "" {
					failing.Add(name, one.LastErrorAtMS, who+one.LastError)
				}
				if at := one.LastMissedAtMS; missed > 0 && at > page.nowMS-missed.Milliseconds() {
					late.Add(name, at, who+plural.Of(int64(one.Missed), "run", "runs")+" in all")
				}
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
		failing.Text = fmt.Sprintf("%s not make the last run; longest %s",
			plural.Of(failing.Count, "schedule could", "schedules could"), failing.Oldest)
		late.Text = fmt.Sprintf("%s out runs within the last %s; first %s",
			plural.Of(late.Count, "schedule left", "schedules left"), config.FormatDuration(missed), late.Oldest)
		return finding.Findings(&failing, &late), nil
	}}
}
