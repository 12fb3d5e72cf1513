package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
)

// watchTime is how long a stream that another process has opened is watched. A running process
// renews it within that time.
const watchTime = renewInterval * 7 / 4

// ErrReplicaRuns is returned by Start if another process runs under the same replica id. Each would
// take results that the other's clients await.
var ErrReplicaRuns = errors.New("another process runs under this replica id")

func (c *cellClient) openReplies(ctx context.Context) error {
	if err := c.checkAlone(ctx); err != nil {
		return err
	}
	return c.cell.OpenReplies(ctx, c.d.cfg.Replica)
}

// checkAlone checks that no other process renews a stream with this name. A stream left by a crash
// only grows older, and is taken over.
func (c *cellClient) checkAlone(ctx context.Context) error {
	left, err := c.cell.RepliesLeft(ctx, c.d.cfg.Replica)
	if err != nil || left == 0 {
		return err
	}
	c.log.Info("replies.found", zap.Duration("watched_for", watchTime))
	tick := time.NewTicker(watchTime / 8)
	defer tick.Stop()
	for end := time.Now().Add(watchTime); time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := c.cell.RepliesLeft(ctx, c.d.cfg.Replica)
		switch {
		case err != nil:
			return err
		case now > left:
			return fmt.Errorf("%w: replica_id is %s, expected one that no other replica has", ErrReplicaRuns, c.d.cfg.Replica)
		}
		left = now
	}
	return nil
}

func (c *cellClient) closeReplies(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	return c.cell.CloseReplies(ctx, c.d.cfg.Replica)
}

// replyKeeper is the loop that renews and trims the reply stream. It also reads the records of jobs
// that have been outstanding for long, because a reply can be lost, and watches what the cell's
// Redis can take.
type replyKeeper struct {
	*cellClient
	reader            *replyReader
	rechecker         *rechecker
	outage, recording *logging.Outage
	// unrecorded is true if the cell may have lost what Start recorded there.
	unrecorded bool
}

func newReplyKeeper(c *cellClient, reader *replyReader) *replyKeeper {
	return &replyKeeper{
		cellClient: c, reader: reader, rechecker: newRechecker(c),
		outage:    logging.NewOutage(c.log, "replies.keep_failed", "replies.kept_again"),
		recording: logging.NewOutage(c.log, "record.failed", "record.written_again"),
	}
}

func (l *replyKeeper) run() {
	l.watchReplicas()
	l.d.tick(renewInterval, nil, l.runOnce)
}

func (l *replyKeeper) runOnce() {
	l.watchMemory()
	l.watchReplicas()
	if l.renew() {
		l.rechecker.recheckOlder(0)
	} else {
		l.rechecker.recheckOlder(l.d.cfg.RecheckInterval)
	}
}

// renew returns true if the stream was gone and had to be reopened: replies may be lost.
func (l *replyKeeper) renew() (reopened bool) {
	ctx, cancel := l.d.timeout()
	defer cancel()
	err := l.cell.KeepReplies(ctx, l.d.cfg.Replica, *l.reader.lastRead.Load())
	if errors.Is(err, cell.ErrRepliesGone) {
		l.unrecorded = true
		if err = l.cell.OpenReplies(ctx, l.d.cfg.Replica); err == nil {
			l.log.Warn("replies.reopened")
			reopened = true
		}
	}
	if err == nil && l.unrecorded {
		l.recordAgain(ctx)
	}
	if l.d.ctx.Err() != nil {
		return false
	}
	away := err != nil && isAway(err)
	l.d.failing.set(l.cell.Index(), away)
	if away {
		l.reader.stopReading()
	}
	l.succeeded(l.outage, err)
	return reopened
}

// recordAgain is called after the reply stream was gone, until it succeeds. Redis may have lost all
// data, so it writes again what the start of a replica records. Otherwise a replica with another
// number of cells could start and record its own, and agents would see no scheduler.
func (l *replyKeeper) recordAgain(ctx context.Context) {
	err := l.cell.Record(ctx)
	if err == nil || cell.IsRefusal(err) {
		l.d.misrecorded.set(l.cell.Index(), err != nil)
	}
	l.unrecorded = !l.succeeded(l.recording, errors.Join(err, l.announceAgain(ctx)))
}

// Recorded reports for readiness whether, as far as is known, every cell would accept a start of
// this replica. detail says how many cells would refuse it.
func (d *Dispatcher) Recorded() (ok bool, detail string) {
	refused := d.misrecorded.load()
	if refused == 0 {
		return true, ""
	}
	return false, fmt.Sprintf("Redis lost its data, and a process with other redis.cells or redis.urls, "+
		"or another release, began anew in %d of %d cells: stop that process, then delete what the log (record.failed) names",
		bits.OnesCount64(uint64(refused)), len(d.byCell))
}
