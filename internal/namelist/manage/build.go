package manage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/plural"
)

// importing builds the version of an upload.
func (m *Manager) importing(ctx context.Context, u Upload) error {
	h, err := m.control.Head(ctx, u.List)
	var result *version.Result
	var v *namelist.Version
	if err == nil {
		change := func(p *version.Plan) {
			p.Upload, p.Remove = &version.Upload{
				ID: u.ID, Open: m.open(&u), Bytes: u.Bytes, Format: u.Format, Header: u.Header,
			}, u.Mode == Remove
		}
		result, v, err = m.build(
			ctx, &h, *u.Op, h.Server, u.Mode != Replace, u.By, func(p version.Progress) { m.progress(u.ID, p) }, change,
		)
	}
	if m.ctx.Err() != nil {
		return err // the next process with this folder continues it
	}
	if err != nil && (ctx.Err() != nil || isAnswer(err)) && m.isOver(u.List, *u.Op) {
		err = errCancelled
	}
	m.endUpload(u, result, v, err)
	if err != nil || !u.Switch || v.Doubt != "" {
		return err
	}
	r := SwitchRequest{Number: v.Number, Serving: namelist.AnyVersion, By: u.By}
	if m.permitted(&u, &r) {
		m.publish(u.List, r, func(err error) { m.unpublished(u.ID, err) })
	}
	return nil
}

// permitted reports whether the version of an upload may be switched to at once. If not, the upload
// says why.
func (m *Manager) permitted(u *Upload, r *SwitchRequest) bool {
	if m.cfg.Permit == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(m.ctx, endTimeout)
	defer cancel()
	err := m.cfg.Permit(ctx, u, r)
	if err != nil {
		m.unpublished(u.ID, err)
	}
	return err == nil
}

// publish switches to a version that was just built. If it cannot, it logs why, and calls failed.
func (m *Manager) publish(list string, r SwitchRequest, failed func(error)) {
	// Not under the lease of the build, which is over.
	ctx, cancel := context.WithTimeout(m.ctx, endTimeout)
	defer cancel()
	if _, err := m.switching(ctx, list, r, failed); err != nil {
		failed(err)
		m.log.Warn("lists.version_not_published", zap.String("list", list), zap.Int64("version", r.Number), zap.Error(err))
	}
}

func (m *Manager) progress(id string, p version.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.uploads[id]; u != nil {
		u.progress = p
	}
}

// build makes the version of an operation, on the server to. If based is true, its base is the
// serving version with the edits since then.
func (m *Manager) build(ctx context.Context, h *namelist.Head, op namelist.Operation, to string, based bool,
	by namelist.By,
	progress func(version.Progress), change func(*version.Plan),
) (*version.Result, *namelist.Version, error) {
	if h.Op.ID != op.ID { // a lease that lapsed before this process began
		return nil, nil, conflict("operation %s of list %s is over", op.ID, h.Name)
	}
	server, err := m.cfg.Server(ctx, to)
	if err != nil {
		return nil, nil, err
	}
	if h.Op.Segments > 0 { // an earlier process has written
		m.writes(op, h.Op.Reservation)
	}
	// The operation's id is also the build's, so it tells what to remove when the operation ends.
	plan := &version.Plan{
		List: h.Name, Number: op.Number, Build: op.ID, Form: h.Form, Seed: h.Seed, Filter: h.Filter, DropBefore: h.At,
	}
	if plan.Budget, err = m.budget(ctx, h.Name, op, to); err != nil {
		return nil, nil, err
	}
	if based {
		if h.Serving != nil {
			plan.Base = h.Serving
			if plan.From, err = m.cfg.Server(ctx, h.Serving.Server); err != nil {
				return nil, nil, err
			}
		}
		if plan.Edits, err = m.edits(ctx, h, op.Base); err != nil {
			return nil, nil, err
		}
	}
	change(plan)
	dir := m.buildFolder(op)
	b := &version.Builder{Dir: dir, To: server, Progress: progress}
	result, err := b.Build(ctx, plan)
	if err = m.named(err); err != nil {
		var damage *version.DamageError
		if errors.As(err, &damage) && plan.Base != nil && damage.Number == plan.Base.Number {
			err = errors.Join(err, m.damage(ctx, h.Name, plan.Base.Number, damage))
		}
		return nil, nil, err
	}
	v := result.Version
	v.Server, v.Author, v.Note, v.Rejected = to, by.Author, by.Note, result.Report.Rejected
	if v.Rejected > 0 {
		v.Upload = plan.Upload.ID
	}
	v.Doubt = doubt(h, &v, op.Kind, v.Rejected-result.Report.Expired, plan.Upload != nil && result.Report.Entries() == 0)
	end := m.control.Done
	if op.Kind == namelist.OpCompact {
		end = m.control.PutVersion
	}
	if _, err := end(ctx, h.Name, op, v); err != nil {
		return nil, nil, err
	}
	m.metrics.ids.Add(float64(v.Count))
	return result, &v, os.RemoveAll(dir)
}

// doubt returns why someone must accept a version before it can serve, or "". bad counts the
// refused lines that are mistakes: an entry that expires between its export and its import is no
// mistake. nothing is true if the upload has no entry, which is a mistake even if entries are only
// added or removed.
func doubt(h *namelist.Head, v *namelist.Version, kind namelist.OpKind, bad int64, nothing bool) string {
	before, what := h.Expected, "expected"
	if h.Serving != nil {
		before, what = h.Serving.Count, "in the serving version"
	}
	switch {
	case kind != namelist.OpImport:
		return "" // it has the same entries as the list
	case bad > 0:
		return plural.Of(bad, "line was rejected", "lines were rejected")
	case v.Count == 0:
		return "it is empty"
	case nothing:
		return "the import has no entry"
	case before > 0 && (2*v.Count < before || v.Count > 2*before):
		return fmt.Sprintf("it has %s, and %s %s", plural.Of(v.Count, "id", "ids"), plural.Of(before, "is", "are"), what)
	}
	return ""
}

// edits returns the edits of the serving version up to a revision, by id.
func (m *Manager) edits(ctx context.Context, h *namelist.Head, last int64) (map[string]namelist.Change, error) {
	return m.editsSince(ctx, h, h.Serving, last)
}

// editsSince returns the edits above the base of a version up to a revision, by id; without a
// version, all edits up to it.
func (m *Manager) editsSince(
	ctx context.Context, h *namelist.Head, v *namelist.Version, last int64,
) (map[string]namelist.Change, error) {
	after := int64(0)
	if v != nil {
		after = v.Base
	}
	out := make(map[string]namelist.Change)
	for more := true; more; {
		d, err := m.control.Delta(ctx, h.Name, after, false)
		if err != nil {
			return nil, err
		}
		if d.Head.Floor > after && v != nil {
			return nil, conflict(
				"the log of list %s does not have all edits since version %d was built; import it anew", h.Name, v.Number,
			)
		}
		more = d.More
		for _, e := range d.Edits {
			if e.Revision > last {
				return out, nil
			}
			for _, c := range e.Changes {
				out[c.ID] = c
			}
			after = e.Revision
		}
	}
	return out, nil
}

// budget returns what the lists of a server may use, and how a build reserves its part.
func (m *Manager) budget(
	ctx context.Context, list string, op namelist.Operation, server string,
) (b version.Budget, err error) {
	servers, err := m.control.Servers(ctx)
	if err != nil {
		return b, err
	}
	for _, s := range servers {
		if s.Name == server {
			b.MaxBytes = s.MaxBytes
		}
	}
	b.Reserve = func(ctx context.Context, need namelist.Reservation) (lists, others int64, err error) {
		need.Server = server
		m.writes(op, need)
		if err := m.control.Reserve(ctx, list, op, need); err != nil {
			return 0, 0, err
		}
		lists, others, err = m.taken(ctx, server, list, op.ID)
		return lists, others, err
	}
	return b, nil
}

// taken returns the bytes that versions have on a server, and the bytes that others than this list
// have reserved there: builds that run, except the one of this operation, and lists that do not
// have their expected ids yet.
func (m *Manager) taken(ctx context.Context, server, list, op string) (lists, others int64, err error) {
	// If a build ends meanwhile, it is counted twice but never left out, because its head is read
	// before its version.
	err = m.each(ctx, func(h *namelist.Head) error {
		has := int64(0)
		if h.Op.Server == server && h.Op.ID != op {
			others += h.Op.Bytes
			has += h.Op.Bytes
		}
		versions, err := m.control.Versions(ctx, h.Name)
		for _, v := range versions {
			if v.Server == server {
				lists += v.Bytes
				has += v.Bytes
			}
		}
		if h.Name != list && h.Server == server && h.State != namelist.Deleting {
			others += max(0, planned(h.Expected)-has)
		}
		return err
	})
	return lists, others, err
}

// planned returns the bytes that a version of that many ids needs.
func planned(ids int64) int64 {
	if ids == 0 {
		return 0
	}
	_, bytes := version.Planned(ids, version.PlannedID)
	return bytes
}

// Reservable returns overloaded if a list server does not have the bytes of a new list with that
// many expected ids, besides its lists and everything that is reserved there.
func (m *Manager) Reservable(ctx context.Context, server string, expected int64) error {
	servers, err := m.control.Servers(ctx)
	if err != nil || expected == 0 {
		return err
	}
	i := slices.IndexFunc(servers, func(s namelist.Server) bool { return s.Name == server })
	if i < 0 || servers[i].MaxBytes == 0 {
		return nil // builds look at the server's memory
	}
	lists, others, err := m.taken(ctx, server, "", "")
	if need := planned(expected); err == nil && lists+others+need > servers[i].MaxBytes {
		err = overloaded(
			"%d expected ids need about %d bytes, and list server %s has %d in use and %d reserved of its max_bytes %d",
			expected,
			need, server, lists, others, servers[i].MaxBytes,
		)
	}
	return err
}

// writes records what a build writes, until that is removed or becomes a version.
func (m *Manager) writes(op namelist.Operation, r namelist.Reservation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrote[op.ID] = r
}

// each calls do with each list.
func (m *Manager) each(ctx context.Context, do func(h *namelist.Head) error) error {
	for after := ""; ; {
		heads, err := m.control.Heads(ctx, after, 100, nil)
		if err != nil {
			return err
		}
		if len(heads) == 0 {
			return nil
		}
		for i := range heads {
			if err := do(&heads[i]); err != nil {
				return err
			}
		}
		after = heads[len(heads)-1].Name
	}
}

// Rebuild builds the content of a list anew and switches to it. That is an expansion, a compaction,
// or, with a server, a move to that server.
func (m *Manager) Rebuild(
	ctx context.Context, list string, kind namelist.OpKind, server string, by namelist.By,
) (namelist.Operation, error) {
	h, err := m.control.Head(ctx, list)
	if err != nil {
		return namelist.Operation{}, err
	}
	to := h.Server
	if kind == namelist.OpMove {
		if _, err := m.cfg.Server(ctx, server); err != nil {
			return namelist.Operation{}, freeslot.Invalid("server", "is %q: %v", server, err)
		}
		to = server
	}
	if h.Serving == nil {
		return namelist.Operation{}, conflict("list %s serves no version", list)
	}
	op, err := m.control.Begin(
		ctx, list, namelist.Begin{Kind: kind, Holder: m.cfg.Self, Serving: h.Serving.Number, By: by},
	)
	if err != nil {
		return op, err
	}
	return op, m.work(list, op, func(ctx context.Context) error {
		h, err := m.control.Head(ctx, list)
		if err != nil {
			return err
		}
		_, v, err := m.build(ctx, &h, op, to, true, by, nil, func(*version.Plan) {})
		if err == nil && kind != namelist.OpCompact {
			m.publish(list, SwitchRequest{Number: v.Number, Serving: namelist.AnyVersion, By: by}, func(error) {})
			return nil
		}
		if err != nil {
			return err
		}
		return m.move(ctx, list, op, prepareTimeout, namelist.AnyVersion)
	})
}

// ImportEdits makes a first version from the edits of a list that has none, and switches to it.
func (m *Manager) ImportEdits(ctx context.Context, list string, by namelist.By) error {
	op, err := m.control.Begin(ctx, list, namelist.Begin{Kind: namelist.OpImport, Holder: m.cfg.Self, Serving: 0, By: by})
	if err != nil {
		return err
	}
	return m.work(list, op, func(ctx context.Context) error {
		h, err := m.control.Head(ctx, list)
		if err != nil {
			return err
		}
		_, v, err := m.build(ctx, &h, op, h.Server, true, by, nil, func(*version.Plan) {})
		if err == nil && v.Doubt == "" {
			m.publish(list, SwitchRequest{Number: v.Number, Serving: namelist.AnyVersion, By: by}, func(error) {})
		}
		return err
	})
}

const prepareTimeout = 30 * time.Second
