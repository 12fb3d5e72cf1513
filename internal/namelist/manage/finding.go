package manage

import (
	"cmp"
	"context"
	"slices"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/plural"
)

// Serving returns the number of the version that a list served in the last round over all lists; 0
// if it served none, or there was no round yet. It asks no one.
func (m *Manager) Serving(list string) int64 {
	if all := m.served.Load(); all != nil && (*all)[list] != nil {
		return (*all)[list].Number
	}
	return 0
}

// Damaged offers the lists whose serving version is damaged, as of the last round over all lists.
// It asks no one. Without lists there is none.
func (m *Manager) Damaged() finding.Source {
	return finding.Source{Name: "damaged lists", Memory: true, Look: func(context.Context) ([]finding.Finding, error) {
		all := m.served.Load()
		if all == nil {
			return nil, nil
		}
		return damagedOf(*all), nil
	}}
}

func damagedOf(serving map[string]*namelist.Version) []finding.Finding {
	f := finding.Finding{
		ID: "lists.damaged", Severity: finding.Critical,
		Next: "import the list anew, or schedctl lists rollback LIST; schedctl lists verify LIST VERSION reads a " +
			"version back",
	}
	for list, v := range serving {
		if v.Damaged == "" {
			continue
		}
		f.Names = append(f.Names, list)
		if v.DamagedMS > 0 && (f.SinceMS == 0 || v.DamagedMS < f.SinceMS) {
			f.SinceMS = v.DamagedMS
		}
	}
	if len(f.Names) == 0 {
		return nil
	}
	slices.SortFunc(f.Names, func(a, b string) int {
		return cmp.Or(cmp.Compare(serving[a].DamagedMS, serving[b].DamagedMS), cmp.Compare(a, b))
	})
	first := f.Names[0]
	f.Text = plural.Of(len(f.Names), "list serves", "lists serve") +
		" a damaged version, so some of the ids are unknown; first " + first + ": " + serving[first].Damaged
	return []finding.Finding{f}
}
