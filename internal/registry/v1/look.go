package v1

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/registry"
)

// service is what a bridge remembers of one service. Only the loop of polls uses it.
type service struct {
	name string
	// scores holds what the last look has read, by id; nil before the first look, which copies
	// nothing.
	scores map[string]string
	// refused holds the ids whose records cannot be copied; the log says why.
	refused map[string]bool
	// empty is true if the last look found neither instances of the first version nor copies.
	empty bool

	// second is what the second version had at this revision. It was read at now, Redis' time, and
	// at loaded, local time.
	second   map[string]*registry.Detail
	now      time.Time
	revision int64
	loaded   time.Time // local
}

// poll compares both versions of a service once, and mends each. After an error, the next poll does
// the rest.
func (b *Bridge) poll(ctx context.Context, s *service) error {
	members, err := b.db.members(ctx, s.name)
	if err != nil {
		return err
	}
	fresh, err := b.load(ctx, s)
	if err != nil {
		return err
	}
	var gone []string
	for id, d := range s.second {
		if _, there := members[id]; d.Origin == registry.OriginV1 && !there {
			gone = append(gone, id)
		}
	}
	s.empty = len(members) == 0 && len(gone) == 0
	if err := b.store.RemoveCopies(ctx, s.name, gone); err != nil {
		return err
	}
	if err := b.copy(ctx, s, members); err != nil {
		return err
	}
	if fresh {
		return b.writeBack(ctx, s, members)
	}
	return nil
}

// load reads what the second version has, if that has changed or is old.
func (b *Bridge) load(ctx context.Context, s *service) (fresh bool, err error) {
	revision, err := b.store.Revision(ctx, s.name)
	if err != nil || s.second != nil && revision == s.revision && time.Since(s.loaded) < b.cfg.Beat {
		return false, err
	}
	at := time.Now()
	second, now, err := instances(ctx, b.store, s.name)
	if err != nil {
		return false, err
	}
	s.second, s.now, s.revision, s.loaded = second, now, revision, at
	return true, nil
}

// instances returns the second version's instances by id. now is Redis' time.
func instances(
	ctx context.Context, from store, name string,
) (out map[string]*registry.Detail, now time.Time, err error) {
	out = make(map[string]*registry.Detail)
	for cursor, more := "0", true; more; more = cursor != "0" {
		var page []registry.Detail
		if page, cursor, now, err = from.Instances(ctx, name, cursor); err != nil {
			return nil, now, err
		}
		for i := range page {
			out[page[i].ID] = &page[i]
		}
	}
	return out, now, nil
}

// copy registers the members whose scores have moved since the last look, and those that are new.
func (b *Bridge) copy(ctx context.Context, s *service, members map[string]string) error {
	if s.scores == nil {
		if len(members) > 0 {
			if err := b.db.watch(ctx, s.name); err != nil {
				return err
			}
		}
		s.scores = members
		return nil
	}
	var moved []string // and those to read again
	for id, score := range members {
		if score != "" && (score != s.scores[id] || s.refused[id]) {
			moved = append(moved, id)
		}
	}
	records, err := b.db.records(ctx, s.name, moved)
	if err != nil {
		return err
	}
	var copies []registry.Copy
	beaten := false
	for i, id := range moved {
		if records[i][originField] == originV2 {
			continue
		}
		beaten = beaten || members[id] != s.scores[id]
		c, err := copyOf(s.name, id, records[i], b.cfg.Interval)
		if err == nil {
			copies = append(copies, c)
			delete(s.refused, id)
			continue
		}
		// A provider writes its record in several steps: this may be only a part, so the next look
		// reads it again.
		if !s.refused[id] {
			s.refused[id] = true
			b.log.Warn("registry.v1_refused", zap.String("service", s.name), zap.String("instance", id), zap.Error(err))
		}
	}
	if beaten {
		if err := b.db.watch(ctx, s.name); err != nil {
			return err
		}
	}
	if err := b.store.PutCopies(ctx, s.name, copies); err != nil {
		return err
	}
	s.scores = members
	maps.DeleteFunc(s.refused, func(id string, _ bool) bool { _, there := members[id]; return !there })
	return nil
}

// writeBack writes living instances of the second version for old consumers, and removes what it
// wrote of instances that are gone. It does not touch a record that a provider of the first version
// wrote.
func (b *Bridge) writeBack(ctx context.Context, s *service, members map[string]string) error {
	written, err := b.db.written(ctx, s.name, slices.Collect(maps.Keys(members)))
	if err != nil {
		return err
	}
	var cmds []rueidis.Completed
	var came, went []string
	score := strconv.FormatInt(s.now.UnixMilli(), 10)
	for id, d := range s.second {
		if _, there := members[id]; !b.cfg.WriteBack || d.Origin == registry.OriginV1 || there && !written[id] {
			continue
		}
		if !written[id] {
			came = append(came, id)
		}
		delete(written, id)
		if alive(d, s.now) {
			cmds = append(cmds, b.db.put(s.name, id, score, recordOf(d))...)
		}
	}
	for id := range written {
		went = append(went, id)
		cmds = append(cmds, b.db.remove(s.name, id)...)
	}
	if _, err := b.db.multi(ctx, cmds); err != nil {
		return err
	}
	if err := b.db.announce(ctx, s.name, "registered", came, s.now); err != nil {
		return err
	}
	return b.db.announce(ctx, s.name, "removed", went, s.now)
}

// alive reports whether an instance has sent a heartbeat in the last three of its intervals. Both
// times are Redis'.
func alive(d *registry.Detail, now time.Time) bool {
	return d.Persistent || now.Sub(d.BeatAt) < 3*d.Interval
}
