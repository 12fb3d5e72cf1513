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
	"github.com/freeslot/freeslot/internal/retry"
)

// Progress reports how far the job is: any value, as json.Marshal makes it, of at most
// freeslot.MaxProgressBytes. It goes to clients that wait for the job, and into the job's status.
// For freeslot.Job.ProgressTimeoutMS it also proves that the handler makes progress.
//
// Progress does not wait. A value is sent once Config.ProgressInterval has passed since the one
// before. The next call, or the end of the job, replaces a value that has not been sent yet. While
// Redis is away the latest is kept. An error means that the value can never be sent. Progress may
// be called concurrently, and does nothing once the handler has returned.
func (j *Job) Progress(value any) error {
	raw, err := json.Marshal(value)
	switch {
	case err != nil:
		return fmt.Errorf("progress cannot be encoded: %w", err)
	case len(raw) > freeslot.MaxProgressBytes:
		return fmt.Errorf("progress has %d bytes of JSON, expected at most %d", len(raw), freeslot.MaxProgressBytes)
	case !utf8.Valid(raw): // can occur within a json.RawMessage
		return fmt.Errorf("progress is not valid UTF-8, as JSON must be")
	}
	if j.report != nil { // nil if a program tests its handler
		j.report(raw)
	}
	return nil
}

// attemptProgress holds the reports of one attempt's handler. The mutex of progress guards it,
// except id.
type attemptProgress struct {
	id cell.Attempt
	// seq counts the reports; value is the last one, nil once it was sent.
	seq   int64
	value json.RawMessage
	// heard is the time of the handler's call or of its last report.
	heard time.Time
	// due is the time at which the next report can be sent.
	due   time.Time
	ended bool
}

// progress holds the latest unsent report of each attempt: at most one value for each running
// handler, even in a long outage of Redis.
type progress struct {
	interval time.Duration
	metrics  *metrics
	// wake holds a token if there is a report that the loop does not know about.
	wake chan struct{}

	mu     sync.Mutex // guards the rest, and each attemptProgress
	unsent map[*attemptProgress]struct{}
}

func newProgress(interval time.Duration, m *metrics) *progress {
	return &progress{interval: interval, metrics: m, wake: make(chan struct{}, 1), unsent: map[*attemptProgress]struct{}{}}
}

// begin is called just before the handler.
func (p *progress) begin(id cell.Attempt) *attemptProgress {
	return &attemptProgress{id: id, heard: time.Now()}
}

func (p *progress) report(t *attemptProgress, value json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.ended {
		return
	}
	t.seq++
	t.heard = time.Now()
	if t.value != nil {
		p.metrics.countProgress(progressReplaced)
	}
	t.value = value
	if _, known := p.unsent[t]; known {
		return
	}
	p.unsent[t] = struct{}{}
	notify(p.wake)
}

// end drops an unsent report: the end of the job replaces it.
func (p *progress) end(t *attemptProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.ended = true
	if t.value != nil {
		p.metrics.countProgress(progressDropped)
		t.value = nil
	}
	delete(p.unsent, t)
}

// quiet returns the time for which the handler has reported nothing.
func (p *progress) quiet(t *attemptProgress) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(t.heard)
}

// ready returns the reports that can be sent now, and the time until there is another one; 0 is
// never.
func (p *progress) ready(
	now time.Time,
) (attempts []*attemptProgress, reports []cell.ProgressReport, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.unsent {
		wait := t.due.Sub(now)
		if wait <= 0 && len(attempts) < cell.MaxProgressItems {
			attempts = append(attempts, t)
			reports = append(reports, cell.ProgressReport{Attempt: t.id, Seq: t.seq, Value: t.value})
			continue
		}
		if wait = max(wait, 1); next == 0 || wait < next {
			next = wait
		}
	}
	return attempts, reports, next
}

// sent records that reports have reached Redis.
func (p *progress) sent(attempts []*attemptProgress, reports []cell.ProgressReport, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range attempts {
		t.due = now.Add(p.interval)
		if t.seq == reports[i].Seq {
			t.value = nil
			delete(p.unsent, t)
		}
	}
}

// progresses sends the handlers' progress, with one call under way, and gathers meanwhile. It
// shares nothing with the reports of ended jobs, so it cannot hold them up.
func (w *Worker) progresses(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	pauses := retry.Pauses()
	failing := false
	for {
		wake := w.progress.wake
		if failing {
			wake = nil // otherwise each new report would cut the pause short
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		attempts, reports, next := w.progress.ready(time.Now())
		switch {
		case len(reports) > 0:
			err := w.sendProgress(ctx, attempts, reports)
			if err != nil && !failing && ctx.Err() == nil {
				w.log.Warn("progress.failed", zap.Error(err))
			}
			if failing = err != nil; failing {
				next = pauses.NextBackOff()
			} else {
				pauses.Reset()
				next = 0 // there may be more
			}
		default:
			failing = false // what failed is gone, or not due yet: new reports wake the loop again
			if next == 0 {
				next = time.Hour
			}
		}
		timer.Reset(next)
	}
}

func (w *Worker) sendProgress(ctx context.Context, attempts []*attemptProgress, reports []cell.ProgressReport) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	outcomes, err := w.store.Progress(ctx, w.cfg.Node.ID, w.epoch, reports)
	if err != nil {
		return err
	}
	w.progress.sent(attempts, reports, time.Now())
	for i, outcome := range outcomes {
		counted := progressSent
		switch id := reports[i].Attempt; outcome {
		case cell.ProgressStale:
			counted = progressStale
			w.ledger.disown(id)
		case cell.ProgressCancel:
			w.ledger.ask(id)
		}
		w.metrics.countProgress(counted)
	}
	return nil
}
