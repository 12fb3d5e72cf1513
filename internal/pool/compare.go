package pool

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// compare reads the configuration in Redis and takes it over.
func (f *Follower) compare(ctx context.Context) error {
	read, err := f.store.stored(ctx)
	if err != nil {
		f.metrics.errors.Inc()
		return err
	}
	m := &f.memory
	if m.news(&read) {
		before := m.State
		changed := m.accept(&read, f.cfg.File)
		if m.Config == nil {
			if changed, err = f.fallBack(ctx); err != nil {
				m.seen = false // so that the next comparison tries again
				f.metrics.errors.Inc()
				return err
			}
		}
		if changed {
			f.metrics.changes.Inc()
		}
		f.publish(&before, changed)
	}
	f.comparedAt.Store(int64(time.Since(f.origin)))
	return nil
}

// fallBack is used by a replica that finds a broken document when it starts. It takes the newest
// valid version of the history, or else the replica's own file.
func (f *Follower) fallBack(ctx context.Context) (changed bool, err error) {
	versions, err := f.store.Versions(ctx)
	if err != nil {
		var refused *rueidis.RedisError
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Error(), "WRONGTYPE") {
			return false, err
		}
		// A history that an operator broke counts as absent.
		f.log.Warn("config.history_unreadable", zap.Error(err))
	}
	for _, v := range versions {
		entry, content, err := f.store.entry(ctx, v.Version)
		if err != nil && freeslot.CodeOf(err) != freeslot.CodeNotFound {
			return false, err
		}
		if cfg, err := Decode(content); err == nil {
			// Pauses are a safeguard, so the present ones apply if only the document is broken.
			if cfg.Paused, err = interpretPaused(&f.memory.last); err != nil {
				cfg.Paused = pausedThen(entry.Paused)
			}
			return f.memory.put(cfg, v.Version, f.memory.last.generation, SourceHistory), nil
		}
	}
	return f.memory.put(f.cfg.File, 0, "", SourceFile), nil
}

// useFile puts File in force, for a start without Redis.
func (f *Follower) useFile(context.Context) error {
	if f.memory.Config == nil {
		before := f.memory.State
		f.publish(&before, f.memory.put(f.cfg.File, 0, "", SourceFile))
	}
	return nil
}

// publish gives out the state that followed before.
func (f *Follower) publish(before *State, changed bool) {
	f.tell(before)
	state := f.memory.State
	f.state.Store(&state)
	if changed && f.cfg.OnChange != nil {
		f.cfg.OnChange(state.Config)
	}
}

// tell logs what a reading changed.
func (f *Follower) tell(before *State) {
	now := &f.memory.State
	if now.Problem != nil {
		f.metrics.invalid.Inc()
		fields := []zap.Field{
			zap.Error(now.Problem), zap.Uint64("version_in_force", now.Version), zap.String("source", string(now.Source)),
		}
		var e *freeslot.Error
		if errors.As(now.Problem, &e) && len(e.Errors) > 1 {
			fields = append(fields, zap.Any("problems", e.Errors))
		}
		f.log.Error("config.invalid", fields...)
	}
	if now.Config == before.Config && now.Version == before.Version && now.Source == before.Source {
		return
	}
	fields := []zap.Field{
		zap.Uint64("version", now.Version), zap.String("source", string(now.Source)), zap.Int("pools", len(now.Config.Pools)),
	}
	switch {
	case now.Source == SourceFile && before.Source != "" && before.Source != SourceFile:
		f.log.Warn("config.gone", fields...) // File is in force again
	case now.Source == SourceRedis && before.Source != SourceRedis && len(f.cfg.File.Pools) > 0:
		f.log.Info("config.wins_over_file", fields...)
	default:
		f.log.Info("config.in_force", fields...)
	}
}
