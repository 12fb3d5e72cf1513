package worker

import (
	"context"
	"errors"
	"runtime"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/retry"
)

const (
	// readBlock is how long a read waits for entries. It is long, because thousands of agents wait
	// like this. The cell's deadline for the read is a little later.
	readBlock = 20 * time.Second
	// readLimit is the largest number of entries in one read.
	readLimit = 128
	// fullPause is the longest delay before the next read of a node without room. Only cancels can
	// come meanwhile, as jobs come with the answers to the node's reports.
	fullPause = 5 * time.Millisecond
)

// errReadAgain ends a read that may hang on a dead connection.
var errReadAgain = errors.New("worker: read again")

// dispatches reads the node's dispatch stream. The position in it only moves forward, and belongs
// to this process. Heartbeats deliver whatever the process misses.
func (w *Worker) dispatches(ctx context.Context) {
	pauses := retry.Pauses()
	failing := false
	for ctx.Err() == nil {
		err := w.readOnce(ctx)
		switch {
		case err == nil:
			failing = false
			pauses.Reset()
			w.awaitRoom(ctx)
		case ctx.Err() != nil:
			return
		case errors.Is(err, errReadAgain):
		default:
			w.metrics.readFailures.Inc()
			if !failing {
				w.log.Warn("dispatch.read_failed", zap.Error(err))
			}
			failing = true
			w.doubt()
			w.requestBeat()
			if !retry.Wait(ctx, pauses.NextBackOff()) {
				return
			}
		}
	}
}

func (w *Worker) readOnce(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w.reading.Store(&end)

	number := w.ledger.read()
	found, err := w.store.Dispatches(ctx, w.cfg.Node.ID, *w.position.Load(), readBlock, readLimit)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	for i := range found {
		w.receive(&found[i])
	}
	if entriesOf(found) < readLimit {
		w.ledger.caughtUp(number)
	}
	if n := len(found); n > 0 {
		last := found[n-1].ID // a copy: a pointer into found would keep all of it
		w.position.Store(&last)
		runtime.Gosched() // lets the new attempts run before the next read: one may already have an end to send
	}
	return nil
}

// entriesOf counts the stream entries that brought these.
func entriesOf(found []cell.Dispatch) int {
	entries := 0
	for i := range found {
		if i == 0 || found[i].ID != found[i-1].ID {
			entries++
		}
	}
	return entries
}

// awaitRoom delays a read while the node holds as many jobs as it has slots. Redis would otherwise
// have to serve the read just when short jobs report their end.
func (w *Worker) awaitRoom(ctx context.Context) {
	if room := w.ledger.room(); room != nil {
		select {
		case <-room:
		case <-time.After(fullPause):
		case <-ctx.Done():
		}
	}
}

func (w *Worker) receive(d *cell.Dispatch) {
	if d.Cancel {
		w.ledger.ask(d.Attempt)
		return
	}
	w.take(d.Attempt, d.Job, d.Tenant, d.ID == "")
}

// readAgain ends the read under way. A connection that died in silence would hold it until its
// deadline. Heartbeats are short, and notice the loss and the return much earlier. Nothing is lost:
// reading changes nothing in Redis.
func (w *Worker) readAgain() {
	if end := w.reading.Load(); end != nil {
		(*end)(errReadAgain)
	}
}

// take starts an attempt that the node owns according to Redis, unless it is known. handedOver is
// true if it came with the answer to a report, and so is in no stream.
func (w *Worker) take(id cell.Attempt, job *freeslot.Job, tenant string, handedOver bool) {
	if a := w.ledger.offer(id, job, tenant, handedOver); a != nil {
		w.attempts.Add(1)
		go w.attempt(a)
	}
}

// growStack makes the stack of a new goroutine large enough for a report, in one step. Without it
// the stack is copied two or three times with all its frames, which took an eighth of the
// processor time of a node with short jobs.
//
//go:noinline
func growStack() {
	var room [6 << 10]byte
	runtime.KeepAlive(&room)
}
