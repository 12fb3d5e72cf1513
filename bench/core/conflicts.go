package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const conflictReplicas = 4

// runConflicts counts the reservations that found their node full, because another replica had just
// taken its slot.
func runConflicts(ctx context.Context, b *tool.Bench) error {
	nodes, slots, takes := tool.Sized(b, 200, 20), 5, 400*time.Millisecond
	warmUp, window := tool.Sized(b, 5*time.Second, 500*time.Millisecond), tool.Sized(b, 20*time.Second, time.Second)
	b.Say("%d replicas as processes, %d nodes of %d slots in one process, jobs of %s that arrive at random moments over WebSocket; %s after %s.",
		conflictReplicas, nodes, slots, takes, window, warmUp)
	b.Say("Refused: reservations that found the node full, of all that were tried, as the replicas count them. Busy: jobs that ended x %s / (slots x time).", takes)
	t := result.Table{First: "Load", Columns: []result.Column{
		{Name: "arrivals due", Unit: result.PerSecond},
		{Name: "jobs", Unit: result.PerSecond},
		{Name: "busy", Unit: result.Percent},
		{Name: "refused", Unit: result.Percent},
		{Name: "submit to assign", Unit: result.Microseconds},
		{Name: "submitted late", Unit: result.Microseconds},
		{Name: "failed"},
	}}
	for _, share := range []float64{0.8, 0.95} {
		rate := share * float64(nodes*slots) / takes.Seconds()
		f, refused, err := measureConflicts(ctx, b, nodes, slots, takes, load.Request{
			Loop: load.Open, Rate: rate, Random: true, WarmUpMS: warmUp.Milliseconds(), MeasureMS: window.Milliseconds(),
		})
		if err != nil {
			return err
		}
		b.Failed += f.Failures()
		t.Rows = append(t.Rows, result.Row{Name: fmt.Sprintf("%.0f %% of slots busy", share*100), Figures: []result.Figure{
			{rate},
			{f.JobsPerSecond},
			{measure.FourFigures(100 * f.JobsPerSecond * takes.Seconds() / float64(nodes*slots))},
			{measure.FourFigures(refused)},
			result.Quantiles(f.Assign.Latency), result.Quantiles(f.Late.Latency),
			{float64(f.Failures())},
		}})
		if share == 0.8 {
			b.Target("reservation conflicts (refused / tried), 80 % of slots busy", result.Percent, result.AtMost, 1, refused)
		}
	}
	b.Result.Tables = []result.Table{t}
	return nil
}

// measureConflicts returns what the clients saw, and the percentage of refused reservations.
func measureConflicts(ctx context.Context, b *tool.Bench, nodes, slots int, takes time.Duration, r load.Request) (_ *load.Figures, refused float64, err error) {
	s, err := startSystem(ctx, b, system.Shape{
		Worker: fmt.Sprintf("-nodes %d -slots %d", nodes, slots), Schedulers: conflictReplicas, Load: "-sessions 8 -takes " + takes.String(),
	})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	f, err := s.Ask(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	full, accepted, err := reservations(ctx, s.Schedulers)
	return f, 100 * full / max(full+accepted, 1), err
}

// reservations reads from the replicas' metrics how many reservations found their node full, and
// how many jobs were accepted.
func reservations(ctx context.Context, replicas []*system.Scheduler) (full, accepted float64, _ error) {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
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
				full += v
			case name == `freeslot_submits_total{outcome="accepted"}`:
				accepted += v
			}
		}
		if err := errors.Join(lines.Err(), resp.Body.Close()); err != nil {
			return 0, 0, err
		}
	}
	return full, accepted, nil
}
