package worker

import (
	"context"
	"errors"
	"runtime"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// readBlock is long, because thousands of agents wait like this. The cell's
	// deadline for the read is a little later.
	readBlock = 20 * time.Second
	// readLimit is how many entries one read takes in.
	readLimit = 128
	// fullPause is how long a node without room puts off its next read, at most: what
	// comes then are cancels, as jobs come with the answers to its reports.
	fullPause = 5 * time.Millisecond
)

// errReadAgain ends a read that may hang on a dead connection.
var errReadAgain = errors.New("worker: read again")

// dispatches reads the node's dispatch stream. Its position only moves forward, in
// this process: what is missed otherwise is delivered by heartbeats.
func (w *Worker) dispatches(ctx context.Context) {
	pauses := retryPauses()
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
			if !pause(ctx, pauses.NextBackOff()) {
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
		runtime.Gosched() // what has just come goes on before the next read: its end may be ready to be sent
	}
	return nil
}

// entriesOf counts the entries of a stream from which these come, in order.
func entriesOf(found []cell.Dispatch) int {
	entries := 0
	for i := range found {
		if i == 0 || found[i].ID != found[i-1].ID {
			entries++
		}
	}
	return entries
}

// awaitRoom puts off a read while the node holds as many jobs as it has slots: Redis would have to
// deal with it just when short jobs report their end.
func (w *Worker) awaitRoom(ctx context.Context) {
	room := w.ledger.room()
	if room == nil {
		return
	}
	timer := time.NewTimer(fullPause)
	defer timer.Stop()
	select {
	case <-room:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *Worker) receive(d *cell.Dispatch) {
	if d.Cancel {
		w.ledger.ask(d.Attempt)
		return
	}
	w.take(d.Attempt, d.Job, d.Tenant, d.ID == "")
}

// readAgain ends the read that is under way. A connection that died in silence
// holds it until its deadline; heartbeats, being short, notice both the loss and
// the return much earlier. Nothing is lost: reading changes nothing in Redis.
func (w *Worker) readAgain() {
	if end := w.reading.Load(); end != nil {
		(*end)(errReadAgain)
	}
}

// take starts an attempt that the node is said to own, unless it is known. handed: it is in no stream.
func (w *Worker) take(id cell.Attempt, job *freeslot.Job, tenant string, handed bool) {
	a := w.ledger.offer(id, job, tenant, handed)
	if a == nil {
		return
	}
	w.attempts.Add(1)
	go w.attempt(a)
}
