package manage

import (
	"context"
	"errors"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

// MaxQuery is the largest number of ids in a query.
const MaxQuery = 1000

// Found is what a list says of an id at a version and revision.
type Found struct {
	ID     string `json:"id"`
	Member bool   `json:"member"`
	// ExpiresMS is Unix ms, by Redis' clock; 0 means never.
	ExpiresMS int64 `json:"expires_ms,omitzero"`
	// Edited is true if an edit after the version decides.
	Edited bool `json:"edited,omitzero"`
	// The tag documents Why for readers of the API.
	Why string `json:"why,omitzero" doc:"Why nothing is known of the id: the list can have no such id, or a part of the version is damaged. Absent otherwise."`
}

// Answers holds the results of one query.
type Answers struct {
	Version  int64   `json:"version" doc:"The version that serves; 0 is none."`
	Revision int64   `json:"revision" doc:"All edits up to it are in the answers."`
	Found    []Found `json:"found" doc:"In the order of the ids."`
}

// Query asks a serving list about ids. An id that the list cannot have does not keep the others
// from an answer. Unlike a reader, it has no memory: it reads everything from Redis.
func (m *Manager) Query(ctx context.Context, list string, ids []string) (a Answers, err error) {
	h, edits, err := m.serving(ctx, list)
	if err != nil {
		return a, err
	}
	if len(ids) == 0 || len(ids) > MaxQuery {
		return a, freeslot.Invalid("ids", "are %d, expected 1 to %d", len(ids), MaxQuery)
	}
	for _, id := range ids {
		f := Found{ID: id}
		if clean, err := h.Form.Clean(id); err != nil {
			f.Why = err.Error()
		} else {
			f.ID = clean
		}
		a.Found = append(a.Found, f)
	}
	a.Version, a.Revision = h.Serving.Number, h.Revision
	return a, m.ask(ctx, h, edits, a.Found)
}

// serving returns the head of a serving list, and its edits.
func (m *Manager) serving(ctx context.Context, list string) (*namelist.Head, map[string]namelist.Change, error) {
	h, err := m.control.Head(ctx, list)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case h.State == namelist.Deleting:
		return nil, nil, conflict("list %s is being deleted", list)
	case h.Serving == nil:
		return nil, nil, conflict("list %s serves no version; import one and switch to it first", list)
	case !h.Expires.IsZero() && !h.Expires.After(h.At):
		return nil, nil, conflict("list %s has ended at %s", list, h.Expires.UTC().Format(time.RFC3339))
	}
	edits, err := m.edits(ctx, &h, h.Revision)
	return &h, edits, err
}

// ask fills in the answers.
func (m *Manager) ask(ctx context.Context, h *namelist.Head, edits map[string]namelist.Change, found []Found) error {
	inBase, err := m.inVersion(ctx, h, found, true)
	if err != nil {
		return err
	}
	now := h.At.UnixMilli()
	for i := range found {
		f := &found[i]
		if c, ok := edits[f.ID]; ok {
			f.Member, f.ExpiresMS, f.Edited, f.Why = !c.Remove, c.ExpiresMS, true, ""
		} else if f.Why != "" {
			continue
		} else if inBase[i] >= 0 {
			f.Member, f.ExpiresMS = true, inBase[i]
		}
		if f.ExpiresMS != 0 && f.ExpiresMS <= now {
			f.Member = false
		}
	}
	return nil
}

// inVersion returns the expiries of ids in the serving version; -1 if the version does not have the
// id. It skips ids that have a reason. With parts, ids of a damaged segment get a reason instead of
// an error.
func (m *Manager) inVersion(ctx context.Context, h *namelist.Head, found []Found, parts bool) ([]int64, error) {
	server, err := m.cfg.Server(ctx, h.Serving.Server)
	if err != nil {
		return nil, err
	}
	bySegment := make(map[uint32][]int)
	for i, f := range found {
		if f.Why != "" {
			continue
		}
		segment := form.Segment(form.Sum(h.Seed, f.ID), h.Serving.Segments)
		bySegment[segment] = append(bySegment[segment], i)
	}
	out := make([]int64, len(found))
	for segment, at := range bySegment {
		ids := make([]string, len(at))
		for j, i := range at {
			ids[j] = found[i].ID
		}
		got, err := server.Lookup(ctx, h.Name, h.Serving, segment, ids)
		if damage, ok := errors.AsType[*version.DamageError](err); ok && parts {
			for _, i := range at {
				found[i].Why = damage.Error()
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		for j, i := range at {
			out[i] = got[j]
		}
	}
	return out, nil
}

// Counted is the number of entries of a list.
type Counted struct {
	Count    int64 `json:"count" doc:"Expired entries count until the next version is built."`
	Version  int64 `json:"version"`
	Revision int64 `json:"revision"`
}

// Count counts the entries of a serving list: those in the version, corrected by what edits change.
func (m *Manager) Count(ctx context.Context, list string) (c Counted, err error) {
	h, edits, err := m.serving(ctx, list)
	if err != nil {
		return c, err
	}
	edited := make([]Found, 0, len(edits))
	for id := range edits {
		edited = append(edited, Found{ID: id})
	}
	before, err := m.inVersion(ctx, h, edited, false)
	if err != nil {
		return c, err
	}
	c = Counted{Count: h.Serving.Count, Version: h.Serving.Number, Revision: h.Revision}
	for i, f := range edited {
		had, has := before[i] >= 0, !edits[f.ID].Remove
		switch {
		case had && !has:
			c.Count--
		case !had && has:
			c.Count++
		}
	}
	return c, nil
}

// OpenSession begins an edit session.
func (m *Manager) OpenSession(ctx context.Context, list string, by namelist.By) (namelist.Operation, error) {
	return m.control.Begin(
		ctx, list, namelist.Begin{Kind: namelist.OpEdit, Holder: m.cfg.Self, Serving: namelist.AnyVersion, By: by},
	)
}

// CommitSession commits an edit session. A nil quota counts nothing. If the
// list has no version, it makes the first one.
func (m *Manager) CommitSession(
	ctx context.Context, list, session string, quota *namelist.Quota, by namelist.By,
) (int64, error) {
	h, err := m.control.Head(ctx, list)
	if err != nil {
		return 0, err
	}
	revision, err := m.control.Commit(ctx, list, session, quota, by)
	if err != nil || h.Serving != nil {
		return revision, err
	}
	return revision, m.ImportEdits(ctx, list, by)
}
