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
func runConflicts(ctx context.Context, b *tool.Bench) {
	nodes, slots, takes := tool.Sized(b, 200, 20), 5, 400*time.Millisecond
	warmUp := tool.Sized(b, 5*time.Second, 500*time.Millisecond)
	window := tool.Sized(b, 20*time.Second, time.Second)
	b.Say("%d replicas as processes, %d nodes of %d slots in one process, jobs of %s that arrive at random moments over "+
		"WebSocket; %s after %s.", conflictReplicas, nodes, slots, takes, window, warmUp)
	b.Say("Refused: reservations that found the node full, of all that were tried, as the replicas count them. Busy: jobs that "+
		"ended x %s / (slots x time).", takes)
	t := result.NewTable("Load", "arrivals due [/s]", "jobs [/s]", "busy [%]", "refused [%]", "submit to assign [us]",
		"submitted late [us]", "failed")
	shape := system.Shape{
		Worker: fmt.Sprintf("-nodes %d -slots %d", nodes, slots), Schedulers: conflictReplicas,
		Load: "-sessions 8 -takes " + takes.String(),
	}
	for _, share := range []float64{0.8, 0.95} {
		all := float64(nodes*slots) / takes.Seconds()
		f, refused := measureConflicts(ctx, b, shape, load.Request{
			Loop: load.Open, Rate: share * all, Random: true, WarmUpMS: warmUp.Milliseconds(), MeasureMS: window.Milliseconds(),
		})
		b.Failed += f.Failures()
		t.Add(fmt.Sprintf("%.0f %% of slots busy", share*100), result.Figure{share * all}, result.Figure{f.JobsPerSecond},
			100*f.JobsPerSecond/all, refused, result.Quantiles(f.Assign.Latency), result.Quantiles(f.Late.Latency), f.Failures())
		if share == 0.8 {
			b.Target("reservation conflicts (refused / tried), 80 % of slots busy", result.Percent, result.AtMost, 1, refused)
		}
	}
	b.Result.Tables = []result.Table{t}
}

// measureConflicts returns what the clients saw, and the percentage of refused reservations.
func measureConflicts(ctx context.Context, b *tool.Bench, shape system.Shape, r load.Request) (*load.Figures, float64) {
	s := startSystem(ctx, b, shape)
	defer tool.End(s.Stop)
	f := tool.Must(s.Ask(ctx, r))
	full, accepted := 0.0, 0.0
	for _, r := range s.Schedulers {
		metrics := tool.Must(readMetrics(ctx, r))
		full += metrics[`freeslot_reservation_refusals_total{reason="full"}`]
		accepted += metrics[`freeslot_submits_total{outcome="accepted"}`]
	}
	return f, 100 * full / max(full+accepted, 1)
}

func readMetrics(ctx context.Context, r *system.Scheduler) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true // one answer is all that is wanted
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	out, lines := make(map[string]float64), bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = v
		}
	}
	return out, errors.Join(lines.Err(), resp.Body.Close())
}
