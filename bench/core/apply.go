package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/events"
)

// applyBatch is how many events are applied in one go; the subscriber's queue has room for them.
const applyBatch = 4000

// applyKind is a kind of event; event makes the i-th of a batch.
type applyKind struct {
	name      string
	event     func(i int) events.Event
	us, alloc []float64
}

func runApply(ctx context.Context, b *bench) error {
	nodes, rounds := sized(b, 10_000, 1000), sized(b, 25, 2)
	b.say("Events wait in the subscriber's queue while the cache's loop is held; then it is let go, and the time until it has applied the last of them is divided by their number (%s). Receiving from the queue, decoding, counting and applying are in it. %s, %d turns, kind after kind; medians.",
		measure.Thousands(applyBatch), measure.Plural(nodes, "node"), rounds)
	f, err := newFedCache(ctx, fleetStates(nodes))
	if err != nil {
		return err
	}
	p := &cachePicture{fedCache: f, nodes: nodes}
	defer p.stop()
	kinds := applyKinds(nodes)
	stop, err := b.startProfile()
	if err != nil {
		return err
	}
	defer stop()
	for range rounds {
		for _, k := range kinds {
			us, allocations, err := f.applyBatch(ctx, k.event)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			k.us, k.alloc = append(k.us, us), append(k.alloc, allocations)
		}
	}
	t := result.Table{First: "Event", Columns: []result.Column{
		{Name: "time", Unit: result.Microseconds}, {Name: "allocations", Unit: result.Number},
	}}
	for _, k := range kinds {
		t.Rows = append(t.Rows, result.Row{Name: k.name, Values: result.Values(rounded(median(k.us)), rounded(median(k.alloc)))})
	}
	b.result.Tables = []result.Table{t}
	b.target("apply a heartbeat event, decoding included: time", result.Microseconds, result.AtMost, 1.5, median(kinds[0].us))
	b.target("apply a heartbeat event, decoding included: allocations", result.Number, result.AtMost, 2, median(kinds[0].alloc))
	return nil
}

func applyKinds(nodes int) []*applyKind {
	beat := heartbeats(nodes)
	slot := func(kind events.Kind, used int) func(i int) events.Event {
		return func(i int) events.Event {
			e := beat(i)
			e.Kind, e.Used, e.Body = kind, used, ""
			return e
		}
	}
	build := 0
	register := func(change bool) func(i int) events.Event {
		return func(i int) events.Event {
			at := i * 7919 % nodes
			n := benchNode(at, benchPools)
			if change {
				build++
				n.Labels["build"] = fmt.Sprint(build)
			}
			body, err := measure.Encode(n)
			if err != nil {
				panic(err) // ours
			}
			e := beat(i)
			e.Kind, e.Body = events.Register, string(body)
			return e
		}
	}
	return []*applyKind{
		{name: "heartbeat", event: beat},
		{name: "slot_full", event: slot(events.SlotFull, 64)},
		{name: "slot_free", event: slot(events.SlotFree, 63)},
		{name: "register, the profile changed", event: register(true)},
		{name: "register, back to the first profile", event: register(false)},
	}
}

// applyBatch measures one batch: microseconds and allocations an event. The last event is a heartbeat, whose
// moment shows that it has been applied.
func (f *fedCache) applyBatch(ctx context.Context, event func(i int) events.Event) (us, allocations float64, err error) {
	messages := f.messages(applyBatch-1, event)
	last := time.Now().UnixMilli() + 1
	node, ok := f.Node(benchNodeID(0))
	if !ok {
		return 0, 0, fmt.Errorf("the cache does not know %s", benchNodeID(0))
	}
	mark := f.messages(1, func(int) events.Event {
		return events.Event{
			Kind: events.Heartbeat, AtMS: last, Node: benchNodeID(0), Epoch: benchEpoch, Status: freeslot.StatusOnline,
			MaxConcurrency: 64, Used: markUsed, Body: benchResources,
		}
	})
	node.SetUsed(0)
	release, err := f.hold(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, m := range append(messages, mark...) {
		if !f.apply(m) {
			return 0, 0, fmt.Errorf("the queue has no room for %d events", applyBatch)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	release()
	for used := 0; used != markUsed; used, _ = node.Load() {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	return float64(took.Nanoseconds()) / 1000 / applyBatch, float64(after.Mallocs-before.Mallocs) / applyBatch, f.settle(ctx)
}

// markUsed is a load that no other event brings.
const markUsed = 61

// hold has the loop wait in a comparison until release. The comparison says that nothing has changed.
func (f *fedCache) hold(ctx context.Context) (release func(), err error) {
	before := uint64(f.next) - 1 - applyBatch
	f.source.revision.Store(before)
	gate := make(chan struct{})
	f.source.gate.Store(&gate)
	entered := f.source.entered.Load()
	done := make(chan error, 1)
	go func() { done <- f.Sync(ctx) }()
	for f.source.entered.Load() == entered {
		select {
		case err := <-done:
			return nil, fmt.Errorf("the loop was not held: %w", err)
		case <-ctx.Done():
			return nil, ctx.Err()
		default:
			runtime.Gosched()
		}
	}
	return func() {
		f.source.gate.Store(nil)
		close(gate)
	}, nil
}
