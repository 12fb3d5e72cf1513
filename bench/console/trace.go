package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/tracing"

	"github.com/freeslot/freeslot/bench/tool"
)

// task is what the page's main thread did without a pause, in milliseconds by Chromium's clock.
type task struct{ at, took float64 }

// traced is what happened in the page while it was traced.
type traced struct {
	tasks []task
	// arrivals are the moments at which messages of the WebSocket came.
	arrivals []float64
}

// between is the time that tasks took which ended after a moment, and not after another one: a
// message comes within the task that reads it, which began before.
func (t *traced) between(from, to float64) (sum float64) {
	for _, one := range t.tasks {
		if end := one.at + one.took; end > from && end <= to {
			sum += one.took
		}
	}
	return sum
}

// longest is how long the longest task took.
func (t *traced) longest() (most float64) {
	for _, one := range t.tasks {
		most = max(most, one.took)
	}
	return most
}

// traceEvent is an event of Chromium's trace, with times in microseconds.
type traceEvent struct {
	Name     string  `json:"name"`
	PID      int     `json:"pid"`
	TID      int     `json:"tid"`
	At       float64 `json:"ts"`
	Duration float64 `json:"dur"`
}

type thread struct{ pid, tid int }

// trace has Chromium trace what happens meanwhile.
func (p *tab) trace(ctx context.Context, do func()) *traced {
	var events []traceEvent
	complete := make(chan struct{})
	p.mu.Lock()
	p.events = func(event any) {
		switch e := event.(type) {
		case *tracing.EventDataCollected:
			for _, value := range e.Value {
				var one traceEvent
				if json.Unmarshal(value, &one) == nil && (one.Name == runTask || one.Name == messageCame) {
					events = append(events, one)
				}
			}
		case *tracing.EventTracingComplete:
			close(complete)
		}
	}
	p.mu.Unlock()
	ask(p, tracing.Start, tracing.StartParams{TraceConfig: &tracing.TraceConfig{
		IncludedCategories: []string{"devtools.timeline", "disabled-by-default-devtools.timeline"}, ExcludedCategories: []string{"*"},
	}})
	do()
	ask(p, tracing.End, cdp.Empty{})
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	select {
	case <-complete:
	case <-ctx.Done():
		tool.Check(fmt.Errorf("chromium does not end its trace: %w", ctx.Err()))
	}
	p.mu.Lock()
	p.events = nil
	p.mu.Unlock()
	return readTrace(events)
}

// The names of events: a task of a thread, and a message of a WebSocket that has come.
const (
	runTask     = "RunTask"
	messageCame = "WebSocketReceive"
)

// readTrace takes the thread that gets the messages for the page's main thread.
func readTrace(events []traceEvent) *traced {
	slices.SortFunc(events, func(a, b traceEvent) int { return int(a.At - b.At) })
	var main thread
	for _, e := range events {
		if e.Name == messageCame {
			main = thread{e.PID, e.TID}
		}
	}
	t := new(traced)
	for _, e := range events {
		switch {
		case (thread{e.PID, e.TID}) != main:
		case e.Name == messageCame:
			t.arrivals = append(t.arrivals, e.At/1000)
		default:
			t.tasks = append(t.tasks, task{e.At / 1000, e.Duration / 1000})
		}
	}
	if len(t.arrivals) == 0 || len(t.tasks) == 0 {
		tool.Check(fmt.Errorf("the trace has %d tasks and %d messages of the page", len(t.tasks), len(t.arrivals)))
	}
	return t
}
