package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Progress tells how far the job is: any value, as json.Marshal makes it, of at most
// freeslot.MaxProgressBytes. Clients that wait for the job are sent it, and it can be read
// from the job's status. It also proves to freeslot.Job.ProgressTimeoutMS that the handler
// gets on.
//
// Progress does not wait: a value is sent once Config.ProgressInterval has passed since the
// one before, and one that has not been sent by the next call, or by the end of the job, is
// not sent any more. While Redis is away the latest is kept. The error says that the value
// cannot be sent, now or ever. Progress may be called concurrently, and does nothing once the
// handler has returned.
func (j *Job) Progress(value any) error {
	raw, err := json.Marshal(value)
	switch {
	case err != nil:
		return fmt.Errorf("progress cannot be encoded: %w", err)
	case len(raw) > freeslot.MaxProgressBytes:
		return fmt.Errorf("progress has %d bytes of JSON, expected at most %d", len(raw), freeslot.MaxProgressBytes)
	case !utf8.Valid(raw): // within a json.RawMessage
		return fmt.Errorf("progress is not valid UTF-8, as JSON must be")
	}
	if j.tell != nil { // else a program tests its handler
		j.tell(raw)
	}
	return nil
}

// talk is what the handler of one attempt tells. The progress' mutex guards it, but for id.
type talk struct {
	id cell.Attempt
	// seq counts what was told; value is the last of it, nil once it was sent.
	seq   int64
	value json.RawMessage
	// heard is when the handler was called, or told something last.
	heard time.Time
	// due is when something can be sent again.
	due   time.Time
	ended bool
}

// progress holds of each attempt the latest that its handler told and that was not sent yet:
// no more than one value for each running handler, however long Redis is away.
type progress struct {
	interval time.Duration
	metrics  *metrics
	// wake has a token when something is to be sent that the loop does not know of.
	wake chan struct{}

	mu     sync.Mutex // guards the rest, and the talks
	unsent map[*talk]struct{}
}

func newProgress(interval time.Duration, m *metrics) *progress {
	return &progress{interval: interval, metrics: m, wake: make(chan struct{}, 1), unsent: map[*talk]struct{}{}}
}

// begin is called with the handler's call.
func (p *progress) begin(id cell.Attempt) *talk { return &talk{id: id, heard: time.Now()} }

func (p *progress) tell(t *talk, value json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.ended {
		return
	}
	t.seq++
	t.heard = time.Now()
	if t.value != nil {
		p.metrics.told(progressReplaced)
	}
	t.value = value
	if _, known := p.unsent[t]; known {
		return
	}
	p.unsent[t] = struct{}{}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// end drops what was not sent: how the job ended says more.
func (p *progress) end(t *talk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.ended = true
	if t.value != nil {
		p.metrics.told(progressDropped)
		t.value = nil
	}
	delete(p.unsent, t)
}

// quiet is for how long the handler has told nothing.
func (p *progress) quiet(t *talk) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(t.heard)
}

// ready takes what can be sent now, and says in how long there is more; 0 is never.
func (p *progress) ready(now time.Time) (talks []*talk, reports []cell.ProgressReport, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.unsent {
		wait := t.due.Sub(now)
		if wait <= 0 && len(talks) < cell.MaxProgressItems {
			talks = append(talks, t)
			reports = append(reports, cell.ProgressReport{Attempt: t.id, Seq: t.seq, Value: t.value})
			continue
		}
		if wait = max(wait, 1); next == 0 || wait < next {
			next = wait
		}
	}
	return talks, reports, next
}

// sent takes in that reports reached Redis.
func (p *progress) sent(talks []*talk, reports []cell.ProgressReport, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range talks {
		t.due = now.Add(p.interval)
		if t.seq == reports[i].Seq {
			t.value = nil
			delete(p.unsent, t)
		}
	}
}

// progresses sends what handlers tell, with one call under way, and gathers meanwhile. It
// shares nothing with the reports of ended jobs, which it cannot hold up.
func (w *Worker) progresses(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	pauses := retryPauses()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.progress.wake:
		case <-timer.C:
		}
		talks, reports, next := w.progress.ready(time.Now())
		for len(reports) > 0 && ctx.Err() == nil {
			err := w.sendProgress(ctx, talks, reports)
			if err != nil && ctx.Err() == nil {
				if !failing {
					w.log.Warn("progress.failed", zap.Error(err))
				}
				failing = true
				if !pause(ctx, pauses.NextBackOff()) {
					return
				}
			} else if failing {
				failing = false
				pauses.Reset()
			}
			talks, reports, next = w.progress.ready(time.Now())
		}
		if next == 0 {
			next = time.Hour // a token comes before there is more
		}
		timer.Reset(next)
	}
}

func (w *Worker) sendProgress(ctx context.Context, talks []*talk, reports []cell.ProgressReport) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	outcomes, err := w.store.Progress(ctx, w.cfg.Node.ID, w.epoch, reports)
	if err != nil {
		return err
	}
	w.progress.sent(talks, reports, time.Now())
	for i, outcome := range outcomes {
		switch id := reports[i].Attempt; outcome {
		case cell.ProgressStale:
			w.metrics.told(progressStale)
			w.ledger.disown(id)
		case cell.ProgressCancel:
			w.metrics.told(progressSent)
			w.ledger.ask(id)
		default:
			w.metrics.told(progressSent)
		}
	}
	return nil
}
