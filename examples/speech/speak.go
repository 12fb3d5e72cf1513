package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

const (
	// lineLimit bounds one line: waiting for a free slot, and being spoken.
	lineLimit = 3 * time.Minute
	// inFlight is the number of lines that are submitted at a time: more than the fleet has slots,
	// so that lines wait for their node.
	inFlight = 12
)

// outcome is the result of a line.
type outcome struct {
	phrase   phrase
	status   freeslot.JobStatus // zero when no job was made
	position int                // among the lines that waited for the same nodes; 0: it did not wait
	assigned time.Duration      // since the line was submitted
	ended    time.Duration
	file     string
	bytes    int
	seconds  float64
	err      error // nil: spoken
}

// runner is the part of the client that a line needs.
type runner interface {
	Submit(ctx context.Context, job freeslot.Job) (*client.Handle, error)
}

// speakAll speaks every phrase that can be spoken and returns the outcomes in the order of the
// lines.
func speakAll(ctx context.Context, c runner, phrases []phrase, out string) []outcome {
	outcomes := make([]outcome, len(phrases))
	next := make(chan int)
	var speakers sync.WaitGroup
	for range min(inFlight, len(phrases)) {
		speakers.Go(func() {
			for i := range next {
				outcomes[i] = speakLine(ctx, c, phrases[i], out)
			}
		})
	}
	for i := range phrases {
		next <- i
	}
	close(next)
	speakers.Wait()
	return outcomes
}

func speakLine(ctx context.Context, c runner, p phrase, out string) outcome {
	o := outcome{phrase: p, err: p.err}
	if o.err != nil {
		return o
	}
	ctx, cancel := context.WithTimeout(ctx, lineLimit)
	defer cancel()
	if o.err = o.run(ctx, c); o.err == nil {
		o.err = o.save(out)
	}
	return o
}

// run submits the line's job, which waits while every node that fits is full, and waits for its
// end.
func (o *outcome) run(ctx context.Context, c runner) error {
	job, err := o.phrase.job()
	if err != nil {
		return err
	}
	begin := time.Now()
	h, err := c.Submit(ctx, job)
	// The system is new, so it waits for further nodes before it says that none fits.
	for refusal := new(freeslot.Error); errors.As(err, &refusal) &&
		refusal.Code == freeslot.CodeUnavailable; h, err = c.Submit(ctx, job) {
		select {
		case <-time.After(refusal.RetryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
		begin = time.Now()
	}
	if err != nil {
		return err
	}
	o.status.ID, o.position = h.ID(), h.Position()
	status, err := h.Wait(ctx)
	if err != nil {
		return fmt.Errorf("wait for job %s: %w", h.ID(), err)
	}
	o.status, o.ended = status, time.Since(begin)
	if at := h.Assignment().At; !at.IsZero() {
		o.assigned = at.Sub(begin)
	}
	switch {
	case status.State == freeslot.StateSucceeded:
		return nil
	case status.Error != nil:
		return status.Error
	default:
		return fmt.Errorf("the job ended %s", status.State)
	}
}

// save writes the sound to the folder out as <line>-<language>.wav.
func (o *outcome) save(out string) error {
	var s speech
	if err := json.Unmarshal(o.status.Result, &s); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	o.status.Result = nil // it is large and not needed any more
	o.file = filepath.Join(out, fmt.Sprintf("%03d-%s.wav", o.phrase.line, o.phrase.language))
	o.bytes, o.seconds = len(s.WAV), s.Seconds
	return os.WriteFile(o.file, s.WAV, 0o644) //nolint:gosec // meant to be heard
}

// state returns the word for the table.
func (o *outcome) state() string {
	switch code := freeslot.CodeOf(o.err); {
	case o.phrase.err != nil:
		return "bad_line"
	case o.err == nil:
		return string(freeslot.StateSucceeded)
	case o.status.State.Terminal() && o.status.State != freeslot.StateSucceeded:
		return string(o.status.State)
	case code != freeslot.CodeInternal:
		return string(code)
	default:
		return "error"
	}
}

// note returns the reason that a line was not spoken.
func (o *outcome) note() string {
	var coded *freeslot.Error
	switch {
	case o.err == nil:
		return ""
	case errors.As(o.err, &coded) && len(coded.Breakdown) > 0:
		return breakdown(coded.Breakdown)
	case o.phrase.err != nil:
		return fmt.Sprintf("line %d %s", o.phrase.line, o.err)
	default:
		return strings.ReplaceAll(o.err.Error(), "\n", " ")
	}
}

// breakdown lists why nodes did not fit, the most frequent reason first.
func breakdown(counts map[string]int) string {
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = fmt.Sprintf("%d by %s", counts[r], r)
	}
	return "nodes ruled out: " + strings.Join(parts, ", ")
}
