package lock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// noteTick is how often a process looks for locks to note.
	noteTick = 500 * time.Millisecond
	// noteAfter is how long a lock must be held or awaited before it is noted. Shorter holds cost
	// Redis nothing.
	noteAfter = time.Second
	// notePeriod is the time between two notes of a lock, and noteLasts the least time for which one
	// lasts.
	notePeriod = 5 * time.Second
	noteLasts  = 3 * notePeriod
)

// noter notes the locks that this process holds or awaits, so that operators can list them. Locks
// work without it: an error only leaves a gap in the listing. It is used by one goroutine.
type noter struct {
	m  *Manager
	at time.Duration // when it looks next, by uptime
}

// look notes what is due, in the background.
func (n *noter) look(ctx context.Context, running *sync.WaitGroup) {
	now := uptime()
	if now < n.at {
		return
	}
	n.at = now + noteTick
	due := make(map[*group][]*acquisition)
	take := func(a *acquisition) bool {
		switch {
		case a.noteAt == 0:
			a.noteAt = now + noteAfter
		case now >= a.noteAt && !a.group.noting.Load():
			a.noteAt = now + notePeriod
			due[a.group] = append(due[a.group], a)
		}
		return false
	}
	n.m.held(take)
	for _, g := range n.m.groups {
		for _, a := range g.waiting() {
			take(a)
		}
	}
	for g, all := range due {
		g.noting.Store(true)
		running.Go(func() {
			defer g.noting.Store(false)
			for items := range slices.Chunk(all, callItems) {
				g.logDoubt("lock.note_failed", g.note(ctx, items))
			}
		})
	}
}

// note runs note.lua. An entry outlasts its lock's lease, so that a lock whose holder has died is
// listed until it is free.
func (g *group) note(ctx context.Context, items []*acquisition) error {
	ctx, cancel := context.WithTimeout(ctx, g.m.opts.callTimeout)
	defer cancel()
	args := make([]string, 0, 2*len(items))
	for _, a := range items {
		args = append(args, a.cfg.Key, milliseconds(max(noteLasts, a.cfg.Lease)))
	}
	if err := g.runner.Call(ctx, scripts["note"], []string{g.keys.listed()}, args).Error(); err != nil {
		return fmt.Errorf("note: %w", err)
	}
	return nil
}
