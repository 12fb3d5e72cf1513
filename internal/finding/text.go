package finding

import (
	"errors"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/plural"
)

// Verdict returns the exit code of a command that shows a report, and why it is not 0: 2 if
// something is critical, 1 if there are warnings, or a part could not say.
func (r *Report) Verdict() (code int, why error) {
	switch {
	case slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Critical }):
		return 2, errors.New("something is critical")
	case len(r.Findings) > 0:
		return 1, errors.New(plural.Of(len(r.Findings), "thing needs", "things need") + " attention")
	case len(r.Unknown) > 0:
		return 1, errors.New("not all parts could say whether they are well")
	}
	return 0, nil
}

// Lines returns a report for people, as the doctor commands show it.
func (r *Report) Lines() (lines []string) {
	for i := range r.Findings {
		f := &r.Findings[i]
		lines = append(lines, strings.ToUpper(string(f.Severity))+": "+f.Text)
		if len(f.Names) > 0 {
			lines = append(lines, "  "+strings.Join(f.Names, ", "))
		}
		lines = append(lines, "  next: "+f.Next, "  see:  "+f.Docs)
	}
	for _, name := range r.Unknown {
		lines = append(lines, "could not be checked in time: "+name)
	}
	for _, text := range r.Unchecked {
		lines = append(lines, "could not be checked: "+text)
	}
	if len(r.Findings)+len(r.Unknown) == 0 {
		lines = append(lines, "nothing is wrong")
	}
	return lines
}
