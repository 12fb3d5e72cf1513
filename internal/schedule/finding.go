package schedule

import (
	"context"
	"fmt"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/plural"
)

// lookedAt is the most schedules that one look reads.
const lookedAt = 1000

// findings offers the schedules whose last run could not be made.
func findings(s *Service) finding.Source {
	return finding.Source{Name: "schedules", Look: func(ctx context.Context) ([]finding.Finding, error) {
		f := finding.Finding{ID: "schedules.failing", Severity: finding.Warning}
		failing, cursor, first := 0, "", ""
		for range lookedAt / MaxPage {
			page, err := s.List(ctx, "", cursor, MaxPage)
			if err != nil {
				return nil, err
			}
			for i := range page.Schedules {
				one := &page.Schedules[i]
				if one.LastError == "" || one.Paused {
					continue
				}
				if failing++; f.SinceMS == 0 || one.LastErrorAtMS < f.SinceMS {
					f.SinceMS, first = one.LastErrorAtMS, one.Name+" of tenant "+one.Tenant+": "+one.LastError
				}
				f.Names = append(f.Names, one.Tenant+"/"+one.Name)
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
		if failing == 0 {
			return nil, nil
		}
		f.Text = fmt.Sprintf(
			"%s not make the last run; longest %s", plural.Of(failing, "schedule could", "schedules could"), first,
		)
		f.Next = "schedctl schedules show NAME shows the error and the next run; mend the job, or pause the schedule"
		return []finding.Finding{f}, nil
	}}
}
