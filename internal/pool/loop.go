package pool

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

func (f *Follower) loop() {
	defer close(f.done)
	var messages <-chan string
	var resets <-chan struct{}
	if f.sub != nil {
		messages, resets = f.sub.Messages(), f.sub.Resets()
	}
	timer := time.NewTimer(f.pause())
	defer timer.Stop()
	for {
		var answer chan error
		select {
		case <-f.stopping:
			return
		case answer = <-f.syncs:
		case <-f.withFile:
			f.useFile()
			continue
		case <-messages:
			// The messages name versions; the reading that follows is at least as new.
			for len(messages) > 0 {
				<-messages
			}
		case <-resets:
		case <-timer.C:
			timer.Reset(f.pause())
		}
		err := f.compare()
		if answer != nil {
			answer <- err
		}
	}
}

// pause returns the time until the next comparison. It varies, so that replicas that started
// together do not ask together.
func (f *Follower) pause() time.Duration {
	return f.cfg.Interval - f.cfg.Interval/20 + rand.N(f.cfg.Interval/10+1)
}

// compare reads the configuration in Redis and takes it over.
func (f *Follower) compare() error {
	read, err := f.store.stored(f.ctx)
	if err != nil {
		f.metrics.errors.Inc()
		return err
	}
	m := &f.memory
	if m.news(&read) {
		before := m.State
		changed := m.accept(&read, f.cfg.File)
		if m.Config == nil {
			if changed, err = f.fallBack(); err != nil {
				m.seen = false // so that the next comparison tries again
				f.metrics.errors.Inc()
				return err
			}
		}
		f.tell(&before)
		state := m.State
		f.state.Store(&state)
		if changed {
			f.metrics.changes.Inc()
			if f.cfg.OnChange != nil {
				f.cfg.OnChange(state.Config)
			}
		}
	}
	f.comparedAt.Store(int64(time.Since(f.origin)))
	return nil
}

// fallBack is used by a replica that finds a broken document when it starts. It takes the newest
// valid version of the history, or else the replica's own file.
func (f *Follower) fallBack() (changed bool, err error) {
	versions, err := f.store.Versions(f.ctx)
	if err != nil {
		var refused *rueidis.RedisError
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Error(), "WRONGTYPE") {
			return false, err
		}
		// A history that an operator broke counts as absent.
		f.log.Warn("config.history_unreadable", zap.Error(err))
	}
	for _, v := range versions {
		entry, content, err := f.store.entry(f.ctx, v.Version)
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
func (f *Follower) useFile() {
	if f.memory.Config != nil {
		return
	}
	before := f.memory.State
	f.memory.put(f.cfg.File, 0, "", SourceFile)
	f.tell(&before)
	state := f.memory.State
	f.state.Store(&state)
	if f.cfg.OnChange != nil {
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
