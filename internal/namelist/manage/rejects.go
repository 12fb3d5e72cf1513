package manage

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/namelist/version"
)

// Rejects is a page of the lines that an import refused.
type Rejects struct {
	Rejected int64            `json:"rejected" doc:"All that were refused; the first 10000 are kept."`
	Rejects  []version.Reject `json:"rejects" doc:"In the order of their lines."`
	After    int64            `json:"after,omitzero" doc:"Continues the listing; absent at its end."`
}

// Rejects returns up to limit refused lines of an upload after line after. Errors: *ElsewhereError;
// not_found; conflict before the upload was built.
func (m *Manager) Rejects(upload string, after int64, limit int) (Rejects, error) {
	u, err := m.Upload(upload)
	if err != nil {
		return Rejects{}, err
	}
	if u.Report == nil {
		return Rejects{}, conflict("upload %s is %s, and has no report", upload, u.State)
	}
	all := u.Report.Rejects
	from, found := slices.BinarySearchFunc(
		all, after, func(r version.Reject, line int64) int { return cmp.Compare(r.Line, line) },
	)
	if found {
		from++
	}
	end := min(from+limit, len(all))
	out := Rejects{Rejected: u.Report.Rejected, Rejects: append([]version.Reject{}, all[from:end]...)}
	if end < len(all) {
		out.After = all[end-1].Line
	}
	return out, nil
}

// RejectsOf returns what was refused of the upload that a version was built from.
func (m *Manager) RejectsOf(ctx context.Context, list string, number, after int64, limit int) (Rejects, error) {
	if _, err := m.control.Head(ctx, list); err != nil {
		return Rejects{}, err
	}
	v, err := m.control.Version(ctx, list, number)
	switch {
	case err != nil:
		return Rejects{}, err
	case v.Upload == "":
		return Rejects{Rejects: []version.Reject{}}, nil
	}
	return m.Rejects(v.Upload, after, limit)
}

// Uploads returns the uploads of a list on this replica, oldest first.
func (m *Manager) Uploads(list string) (out []Upload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.uploads {
		if u.List == list {
			out = append(out, *u)
		}
	}
	slices.SortFunc(out, func(a, b Upload) int { return strings.Compare(a.ID, b.ID) })
	return out
}
