package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

// keepReplies keeps the reply stream alive and trimmed, and reads the records of
// jobs that have been outstanding for long: a reply is a hint and can be lost.
func (l *link) keepReplies() {
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	l.watchReplicas()
	for {
		select {
		case <-l.d.ctx.Done():
			return
		case <-ticker.C:
		}
		l.watchMemory()
		l.watchReplicas()
		if l.keep() {
			l.recheckOlder(0)
		} else {
			l.recheckOlder(l.d.cfg.RecheckInterval)
		}
	}
}

// keep returns true when the stream had to be opened anew: replies may be lost.
func (l *link) keep() bool {
	ctx, cancel := context.WithTimeout(l.d.ctx, ioTimeout)
	defer cancel()
	err := l.cell.KeepReplies(ctx, l.d.cfg.Replica, l.read.load())
	if errors.Is(err, cell.ErrRepliesGone) {
		err = l.cell.OpenReplies(ctx, l.d.cfg.Replica)
		if err == nil {
			l.log.Warn("replies.reopened")
			l.d.failing.set(l.cell.Index(), false)
			l.keeping.Over()
			return true
		}
	}
	if l.d.ctx.Err() == nil {
		l.d.failing.set(l.cell.Index(), err != nil && isAway(err))
		if err != nil {
			if isAway(err) {
				l.stopReading()
			}
			l.keeping.Failed(err)
		} else {
			l.keeping.Over()
		}
	}
	return false
}
