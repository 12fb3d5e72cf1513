package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/bench/trace"
)

const (
	replayReplicas = 4
	// pickyShare of the jobs ask for a GPU model, each for one in proportion to its slots.
	pickyShare = 0.5
)

// replay runs a trace's requests as jobs on a part of a trace's fleet. It compares their delay with that of a scheduler
// that knows everything at once, and counts how often replicas took the same slot.
func (b *bench) replay(ctx context.Context) error {
	if b.trace == "" {
		return fmt.Errorf("%w: -trace and -nodes name no files", tool.ErrLeftOut)
	}
	requests, err := trace.OpenRequests(b.trace)
	if err != nil {
		return err
	}
	list, err := trace.OpenNodes(b.nodes)
	if err != nil {
		return err
	}
	fleet := trace.Fleet(list, tool.Sized(b.Bench, 200, 50))
	jobs := int(b.rate * tool.Sized(b.Bench, 60.0, 5.0))
	b.Result.Servers = b.redis + ", append-only file off"
	b.Say("The first %d requests of `%s` on %s with %d slots, through %d replicas over WebSocket. A job takes time in proportion to its generated tokens, so that a share of the slots is busy; half of the jobs ask for a GPU model. What the trace begins with is no average: the share is over all of it.",
		jobs, filepath.Base(b.trace), measure.Plural(len(fleet), "node"), trace.TotalSlots(fleet), replayReplicas)
	b.Say("The ideal scheduler knows every slot at once, costs nothing, and serves those that ask for the same in the order in which they came. Delays are from when a job was due until its handler began; over ideal is the difference, job by job.")
	b.Say("Refused: reservations that found their node full, of all that were tried, as the replicas count them.")
	t := result.Table{First: "Slots busy", Columns: []result.Column{
		{Name: "jobs due", Unit: result.PerSecond}, {Name: "faster than recorded", Unit: result.Times}, {Name: "delay", Unit: result.Microseconds},
		{Name: "ideal", Unit: result.Microseconds}, {Name: "over ideal", Unit: result.Microseconds}, {Name: "submitted late", Unit: result.Microseconds},
		{Name: "mean delay", Unit: result.Microseconds}, {Name: "mean of ideal", Unit: result.Microseconds}, {Name: "failed"}, {Name: "refused", Unit: result.Percent},
	}}
	for _, busy := range []float64{0.5, 0.8, 0.95} {
		plan, err := planOf(requests, fleet, jobs, b.rate, busy)
		if err != nil {
			return err
		}
		row, err := b.replayOnce(ctx, plan, fleet)
		if err != nil {
			return fmt.Errorf("%.0f %% busy: %w", busy*100, err)
		}
		row.Name = fmt.Sprintf("%.0f %%", busy*100)
		row.Figures = append(result.Figures(b.rate, measure.Rounded(b.rate/recordedRate(requests))), row.Figures...)
		t.Rows = append(t.Rows, row)
	}
	b.Result.Tables = []result.Table{t}
	return nil
}

// recordedRate is requests a second as the trace has them.
func recordedRate(requests []trace.Request) float64 {
	span := requests[len(requests)-1].At - requests[0].At
	return float64(len(requests)-1) / time.Duration(span).Seconds()
}

// planOf is the beginning of the trace at this rate, with durations that keep a share of the slots busy.
func planOf(requests []trace.Request, fleet []trace.Node, jobs int, rate, busy float64) ([]load.Planned, error) {
	arrivals, err := trace.NewArrivals(requests, rate)
	if err != nil {
		return nil, err
	}
	durations, err := trace.NewDurations(requests, rate, trace.TotalSlots(fleet), busy)
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

func (b *bench) replayOnce(ctx context.Context, plan []load.Planned, fleet []trace.Node) (row result.Row, err error) {
	data, err := json.Marshal(plan)
	if err != nil {
		return row, err
	}
	path := filepath.Join(b.Folder, "plan.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return row, err
	}
	list, err := filepath.Abs(b.nodes)
	if err != nil {
		return row, err
	}
	s, err := system.Start(ctx, b.programs, system.Shape{
		Program: system.Freeslot, AOF: system.AOFOff, Schedulers: replayReplicas, Worker: fmt.Sprintf("-nodes %d -list %s", len(fleet), list),
	})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	f, err := s.Ask(ctx, load.Request{Loop: load.Replay, Plan: path, MeasureMS: plan[len(plan)-1].AtUS / 1000})
	if err != nil {
		return row, err
	}
	b.Failed += f.Failures()
	refused, assigned, err := reservations(ctx, s.Schedulers)
	if err != nil {
		return row, err
	}
	row.Figures = append(compare(plan, fleet, f), result.Figure{measure.FourFigures(100 * refused / max(refused+assigned, 1))})
	b.Progress("delay %s", row.Figures[0])
	return row, nil
}

// compare holds each job's delay against the ideal one of the same jobs.
func compare(plan []load.Planned, fleet []trace.Node, f *load.Figures) []result.Figure {
	slots := make(map[string]int)
	for i := range fleet {
		slots[fleet[i].Model] += fleet[i].Slots()
	}
	ideal := idealDelays(plan, slots)
	delays, ideals, overs := measure.NewHistogram(), measure.NewHistogram(), measure.NewHistogram()
	for i, us := range f.Delays {
		measure.Record(ideals, time.Duration(ideal[i])*time.Microsecond)
		if us >= 0 {
			measure.Record(delays, time.Duration(us)*time.Microsecond)
			measure.Record(overs, time.Duration(us-ideal[i])*time.Microsecond)
		}
	}
	delay, least := measure.Summary(delays), measure.Summary(ideals)
	return []result.Figure{
		result.Quantiles(delay), result.Quantiles(least), result.Quantiles(measure.Summary(overs)), result.Quantiles(f.Late.Latency),
		{delay.Mean}, {least.Mean}, {float64(f.Failures())},
	}
}

// reservations reads from the replicas' metrics how many reservations found their node full, and how many jobs got a slot.
func reservations(ctx context.Context, replicas []*system.Scheduler) (refused, assigned float64, _ error) {
	for _, r := range replicas {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Address+"/metrics", http.NoBody)
		if err != nil {
			return 0, 0, err
		}
		req.Close = true // one answer is all that is wanted
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, 0, err
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			v, err := strconv.ParseFloat(value, 64)
			switch {
			case err != nil:
			case name == `freeslot_reservation_refusals_total{reason="full"}`:
				refused += v
			case name == `freeslot_submits_total{outcome="accepted"}`:
				assigned += v
			}
		}
		if err := errors.Join(lines.Err(), resp.Body.Close()); err != nil {
			return 0, 0, err
		}
	}
	return refused, assigned, nil
}
