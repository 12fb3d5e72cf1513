package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/peers/result"
	"github.com/freeslot/freeslot/bench/trace"
)

const (
	replayRate = 400
	// pickyShare of the jobs ask for a GPU model, each for one in proportion to its slots.
	pickyShare = 0.5
)

// replay runs a trace's requests as jobs on a part of a trace's fleet, and holds their delay against that of a
// scheduler that knows everything at once.
func (b *bench) replay(ctx context.Context) error {
	if b.trace == "" {
		b.say("left out: -trace and -nodes name no files")
		return nil
	}
	begin := time.Now()
	requests, err := trace.OpenRequests(b.trace)
	if err != nil {
		return err
	}
	list, err := trace.OpenNodes(b.nodes)
	if err != nil {
		return err
	}
	nodes := sized(b.short, 50, 200)
	fleet := trace.Fleet(list, nodes)
	jobs := int(replayRate * sized(b.short, 5, 60))
	out := &result.Replay{Trace: filepath.Base(b.trace), Nodes: len(fleet), Slots: trace.TotalSlots(fleet), Jobs: jobs}
	for _, busy := range []float64{0.5, 0.8, 0.95} {
		plan, err := planOf(requests, fleet, jobs, busy)
		if err != nil {
			return err
		}
		r, err := b.replayOnce(ctx, plan, fleet)
		if err != nil {
			return fmt.Errorf("%.0f %% busy: %w", busy*100, err)
		}
		r.Busy, r.Rate, r.Faster = busy, replayRate, measure.Rounded(replayRate/recordedRate(requests))
		out.Runs = append(out.Runs, *r)
		b.say("%.0f %% busy: delay %s, ideal %s, over ideal %s", busy*100, r.Delay.Words(), r.Ideal.Words(), r.Over.Words())
	}
	out.Run = b.runNow(begin)
	b.results.Replay = out
	return nil
}

// recordedRate is requests a second as the trace has them.
func recordedRate(requests []trace.Request) float64 {
	span := requests[len(requests)-1].At - requests[0].At
	return float64(len(requests)-1) / time.Duration(span).Seconds()
}

// planOf is the beginning of the trace at the replay's rate, with durations that keep a share of the slots busy.
func planOf(requests []trace.Request, fleet []trace.Node, jobs int, busy float64) ([]load.Planned, error) {
	arrivals, err := trace.NewArrivals(requests, replayRate)
	if err != nil {
		return nil, err
	}
	durations, err := trace.NewDurations(requests, replayRate, trace.TotalSlots(fleet), busy)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same jobs each time
	var models []string                   // one a slot
	for i := range fleet {
		for range fleet[i].Slots() {
			models = append(models, fleet[i].Model)
		}
	}
	plan := make([]load.Planned, jobs)
	for i := range plan {
		a := arrivals.Next()
		plan[i] = load.Planned{AtUS: a.At.Microseconds(), RunUS: durations.Of(a.Request).Microseconds()}
		if random.Float64() < pickyShare {
			plan[i].Model = models[random.IntN(len(models))]
		}
	}
	return plan, nil
}

func (b *bench) replayOnce(ctx context.Context, plan []load.Planned, fleet []trace.Node) (_ *result.ReplayRun, err error) {
	data, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.folder, "plan.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	list, err := filepath.Abs(b.nodes)
	if err != nil {
		return nil, err
	}
	e := entries()[0]
	setting := one(fmt.Sprintf("-nodes %d -list %s", len(fleet), list), "", 0, 1)
	s, err := b.start(ctx, shape{entry: &e, setting: setting, aof: aofOff})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	f, err := s.ask(ctx, load.Request{Loop: load.Replay, Plan: path, MeasureMS: plan[len(plan)-1].AtUS / 1000})
	if err != nil {
		return nil, err
	}
	return compare(plan, fleet, f), nil
}

// compare holds each job's delay against the ideal one of the same jobs.
func compare(plan []load.Planned, fleet []trace.Node, f *load.Figures) *result.ReplayRun {
	slots := make(map[string]int)
	for i := range fleet {
		slots[fleet[i].Model] += fleet[i].Slots()
	}
	best := idealDelays(plan, slots)
	delay, least, over := measure.NewHistogram(), measure.NewHistogram(), measure.NewHistogram()
	record := func(h *hdrhistogram.Histogram, us int64) { measure.Record(h, time.Duration(us)*time.Microsecond) }
	for i, us := range f.Delays {
		record(least, best[i])
		if us < 0 {
			continue
		}
		record(delay, us)
		record(over, us-best[i])
	}
	r := &result.ReplayRun{Delay: measure.Summary(delay), Ideal: measure.Summary(least), Over: measure.Summary(over), Failed: f.Failed}
	if f.Late != nil {
		r.Late = f.Late.Latency
	}
	return r
}
