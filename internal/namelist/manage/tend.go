package manage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
)

// isAnswer reports whether a call was refused because of the list, and not failed on its way to
// Redis.
func isAnswer(err error) bool {
	code := freeslot.CodeOf(err)
	return code == freeslot.CodeConflict || code == freeslot.CodeNotFound
}

// tendLoop tends all lists until the manager stops.
func (m *Manager) tendLoop() {
	ticker := time.NewTicker(m.cfg.Pause)
	defer ticker.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-ticker.C:
		}
		m.dropOld()
		if err := m.announce(); err != nil && m.ctx.Err() == nil {
			m.log.Warn("lists.servers_not_told", zap.Error(err))
		}
		m.tendAll()
	}
}

// tendAll tends each list once. It logs why it cannot, if the reason differs from the last one.
func (m *Manager) tendAll() {
	seen := round{serving: make(map[string]*namelist.Version), states: make(map[namelist.State]int)}
	err := m.each(m.ctx, func(h *namelist.Head) error {
		seen.saw(h)
		m.verifySoon(h)
		switch err := m.tend(h); {
		case err == nil:
			delete(m.told, h.Name)
		case m.ctx.Err() == nil && m.told[h.Name] != err.Error():
			m.told[h.Name] = err.Error()
			m.log.Warn("lists.not_tended", zap.String("list", h.Name), zap.Error(err))
		}
		return nil
	})
	if err == nil {
		m.away.Over()
		m.metrics.round(&seen)
		m.served.Store(&seen.serving)
	} else if m.ctx.Err() == nil {
		m.away.Failed(err)
	}
}

// announce adds list servers that control does not have: after a flush no one else does. It leaves
// servers alone that control has, since its records may be newer.
func (m *Manager) announce() error {
	if len(m.cfg.Servers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, endTimeout)
	defer cancel()
	have, err := m.control.Servers(ctx)
	if err != nil {
		return err
	}
	for _, s := range m.cfg.Servers {
		if !slices.ContainsFunc(have, func(h namelist.Server) bool { return h.Name == s.Name }) {
			err = errors.Join(err, m.control.PutServer(ctx, s))
		}
	}
	return err
}

// sweepLoop removes what ended builds wrote. A list server that is away holds up nothing else.
func (m *Manager) sweepLoop() {
	ticker := time.NewTicker(m.cfg.Pause)
	defer ticker.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-ticker.C:
			m.removeEnded()
		}
	}
}

// tend ends what others have left of a list, and begins what is due.
func (m *Manager) tend(h *namelist.Head) error {
	ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
	defer cancel()
	switch {
	case h.Lapsed():
		return m.end(ctx, h)
	case h.State == namelist.Deleting:
		return m.remove(ctx, h)
	}
	var err error
	if h.Op.ID == "" { // before a compaction, which needs the room that old versions take
		err = m.dropVersions(ctx, h)
	}
	if compactable(h) {
		m.compact(ctx, h)
	}
	return err
}

// compaction says when the serving version of a list is compacted, or tried again.
type compaction struct {
	serving int64
	next    time.Time
	wait    time.Duration
}

// The pauses of a compaction that does not succeed.
const (
	compactPause    = 30 * time.Second
	maxCompactPause = time.Hour
)

// compactable reports whether a list has enough edits to need a new version.
func compactable(h *namelist.Head) bool {
	return h.Serving != nil && h.State != namelist.Frozen && h.Op.Kind != namelist.OpCompact &&
		h.Edited-h.Serving.Edited >= namelist.CompactFrom
}

// compact begins a compaction, or logs why it cannot. Each pause is twice as long as the last one,
// because a failed try may have read the whole list. Only tendLoop calls it.
func (m *Manager) compact(ctx context.Context, h *namelist.Head) {
	c := m.compactions[h.Name]
	if c.serving != h.Serving.Number {
		c = compaction{serving: h.Serving.Number}
	}
	if time.Now().Before(c.next) {
		return
	}
	first := c.wait == 0
	c.wait = min(max(2*c.wait, compactPause), maxCompactPause)
	c.next = time.Now().Add(c.wait)
	m.compactions[h.Name] = c
	if why := m.beginCompaction(ctx, h, first); why != nil && m.ctx.Err() == nil {
		m.metrics.compactionsLate.Inc() // work reports a compaction that began and failed
		m.log.Warn("lists.compaction_late", zap.String("list", h.Name), zap.Int64("edits", h.Edited-h.Serving.Edited),
			zap.Duration("next", c.wait), zap.Error(why))
	}
}

func (m *Manager) beginCompaction(ctx context.Context, h *namelist.Head, first bool) error {
	switch {
	case h.Serving.Damaged != "":
		return conflict("version %d is damaged: %s; import the list anew", h.Serving.Number, h.Serving.Damaged)
	case h.Op.ID != "" && first:
		return nil // it may be over soon
	case h.Op.ID != "":
		return conflict(
			"operation %s (%s) of %s runs since %s", h.Op.ID, h.Op.Kind, h.Op.Holder, h.Op.Since.UTC().Format(time.RFC3339),
		)
	}
	_, err := m.Rebuild(ctx, h.Name, namelist.OpCompact, "", namelist.By{Author: "compaction"})
	if freeslot.CodeOf(err) == freeslot.CodeConflict {
		if now, err := m.control.Head(ctx, h.Name); err == nil && !compactable(&now) {
			return nil // another replica was first
		}
	}
	return err
}

// end ends an operation whose replica is gone. A switch that has moved the pointer ended in the
// same step, so the only thing left to do is to roll back.
func (m *Manager) end(ctx context.Context, h *namelist.Head) error {
	op, err := m.control.Take(ctx, h.Name, h.Op.ID, m.cfg.Self)
	if err != nil {
		if isAnswer(err) {
			return nil // another replica was first
		}
		return err
	}
	m.metrics.takenOver.Inc()
	m.log.Info("lists.operation_taken_over", zap.String("list", h.Name), zap.String("kind", string(op.Kind)),
		zap.String("replica", h.Op.Holder))
	if _, err := m.control.Cancel(ctx, h.Name, op.ID); err != nil {
		return err
	}
	m.sweep(h.Name, op)
	return nil
}

// remove ends a list that was deleted.
func (m *Manager) remove(ctx context.Context, h *namelist.Head) error {
	versions, err := m.control.Versions(ctx, h.Name)
	if err != nil {
		return err
	}
	// h may be old: the list may have been made again meanwhile, and these may be its new versions.
	now, err := m.control.Head(ctx, h.Name)
	if err != nil || now.State != namelist.Deleting || now.Birth != h.Birth {
		return err
	}
	for i := range versions {
		server, err := m.cfg.Server(ctx, versions[i].Server)
		if err != nil {
			return err
		}
		if _, err := server.Unlink(ctx, h.Name, &versions[i]); err != nil {
			return err
		}
	}
	return m.control.FinishDelete(ctx, h.Name)
}

// Delete begins the end of a list. If the list is being deleted already, force forgets the keys
// that are left, and ends it. left names the versions whose keys stay, because their server is not
// there.
func (m *Manager) Delete(
	ctx context.Context, list string, force bool, by namelist.By,
) (h namelist.Head, left []string, err error) {
	if h, err = m.control.Head(ctx, list); err != nil {
		return h, nil, err
	}
	if h.State != namelist.Deleting {
		h, err = m.control.Delete(ctx, list, namelist.AnyVersion, force, by)
		return h, nil, err
	}
	versions, err := m.control.Versions(ctx, list)
	if err != nil {
		return h, nil, err
	}
	for i := range versions {
		if _, err := m.cfg.Server(ctx, versions[i].Server); err != nil {
			left = append(left, fmt.Sprintf("version %d: %v", versions[i].Number, err))
		}
	}
	switch {
	case force:
	case len(left) > 0:
		return h, nil, conflict(
			"list %s is being deleted, but not all of its keys can be removed (%s); force forgets them", list,
			strings.Join(left, "; "),
		)
	default:
		return h, nil, conflict("list %s is being deleted", list)
	}
	if err := m.control.FinishDelete(ctx, list); err != nil {
		return h, nil, err
	}
	for i := range versions {
		m.removeLater(list, versions[i])
	}
	return h, left, nil
}

// servedLife is how long a version stays for live clients that still serve it.
const servedLife = 24 * time.Hour

// kept returns the versions that stay in any case: the serving one, if there is one; the newest
// that has served before it and can serve again; two newer ones that have served; and the two
// newest that never served, which wait for someone. At least two stay. versions begins with the
// newest.
func kept(h *namelist.Head, versions []namelist.Version) map[int64]bool {
	serving := int64(0)
	if h.Serving != nil {
		serving = h.Serving.Number
	}
	keep := map[int64]bool{serving: true}
	back, older, newer, waiting := int64(0), int64(0), 0, 0
	for i := range versions {
		v := &versions[i]
		switch {
		case v.Number == serving:
		case v.StoppedMS == 0:
			waiting++
			keep[v.Number] = waiting <= keepVersions
		case v.Number > serving:
			newer++
			keep[v.Number] = newer <= keepVersions
		default:
			older = max(older, v.Number)
			if h.Target(v) == nil {
				back = max(back, v.Number)
			}
		}
	}
	if newer+waiting == 0 && back == 0 {
		back = older
	}
	keep[back] = true
	return keep
}

// dropVersions removes versions that are no longer needed.
func (m *Manager) dropVersions(ctx context.Context, h *namelist.Head) error {
	versions, err := m.control.Versions(ctx, h.Name)
	if err != nil || len(versions) <= keepVersions {
		return err
	}
	live, _, err := m.control.Clients(ctx, h.Name)
	if err != nil {
		return err
	}
	keep := kept(h, versions)
	for i := range versions {
		v := &versions[i]
		asked := h.At.UnixMilli()-max(v.StoppedMS, v.AtMS) < servedLife.Milliseconds() &&
			slices.ContainsFunc(live, func(c namelist.Client) bool { return c.Serves == v.Number })
		if keep[v.Number] || asked {
			continue
		}
		// The record comes first, so that no one can switch to the version any more.
		if _, err := m.control.DropVersion(ctx, h.Name, v.Number); err != nil {
			return err
		}
		m.removeLater(h.Name, *v)
	}
	return nil
}

// removeEnded removes what builds wrote without becoming a version. It does so again after
// lateWrites: a replica that was frozen may have written more.
func (m *Manager) removeEnded() {
	m.mu.Lock()
	due := m.ended
	m.ended = nil
	m.mu.Unlock()
	var stays []endedBuild
	for _, e := range due {
		again := !e.at.IsZero()
		if again && time.Since(e.at) < lateWrites {
			stays = append(stays, e)
			continue
		}
		if err := m.removeBuild(e); err != nil {
			if m.ctx.Err() == nil {
				m.log.Warn(
					"lists.keys_not_removed", zap.String("list", e.list), zap.Int64("version", e.version.Number),
					zap.Error(err),
				)
			}
			if _, gone := errors.AsType[*NoServerError](err); !gone {
				stays = append(stays, e)
			}
		} else if !again {
			m.metrics.swept.Inc()
			e.at = time.Now()
			stays = append(stays, e)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = append(m.ended, stays...)
}

// removeTimeout bounds the removal of one version's keys.
const removeTimeout = 10 * time.Minute

// removeBuild removes the keys of one build.
func (m *Manager) removeBuild(e endedBuild) error {
	ctx, cancel := context.WithTimeout(m.ctx, removeTimeout)
	defer cancel()
	if used, err := m.isVersion(ctx, e); used || err != nil {
		return err
	}
	server, err := m.cfg.Server(ctx, e.version.Server)
	if err != nil {
		return err
	}
	_, err = server.Unlink(ctx, e.list, &e.version)
	return err
}

// isVersion reports whether an ended build has become a version that is in use. If the version is
// not in use, it is forgotten first, so that no one can switch to it.
func (m *Manager) isVersion(ctx context.Context, e endedBuild) (bool, error) {
	versions, err := m.control.Versions(ctx, e.list)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(
		versions, func(v namelist.Version) bool { return v.Number == e.version.Number && v.Build == e.version.Build },
	) {
		return false, nil
	}
	_, err = m.control.DropVersion(ctx, e.list, e.version.Number)
	switch freeslot.CodeOf(err) {
	case freeslot.CodeConflict:
		return true, nil
	case freeslot.CodeNotFound:
		return false, nil
	}
	return false, err
}
