package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
)

// target adds a target; a nil figure was not measured.
func (b *bench) target(what string, unit result.Unit, bound result.Bound, limit float64, measured result.Figure, note string) {
	t := result.Target{What: what, Unit: unit, Bound: bound, Limit: limit}
	if measured != nil {
		t.Measured, t.Note = &measured[0], note
	}
	b.Result.Targets = append(b.Result.Targets, t)
}

func find(all []*contender, name string) *contender {
	if i := slices.IndexFunc(all, func(c *contender) bool { return c.name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// against holds an entry's throughput against asynq's.
func (b *bench) against(what string, limit float64, all []*contender, name string) {
	b.faster(what, limit, find(all, name), find(all, asynq))
}

// faster holds a throughput against another one's.
func (b *bench) faster(what string, limit float64, ours, theirs *contender) {
	if ours == nil || theirs == nil {
		b.target(what, result.Times, result.AtLeast, limit, nil, "")
		return
	}
	a, z := ours.throughput(), theirs.throughput()
	b.target(what, result.Times, result.AtLeast, limit, result.Figure{measure.FourFigures(a / z)},
		fmt.Sprintf("%s and %s jobs/s", measure.Thousands(a), measure.Thousands(z)))
}

// plainTargets are the targets of the comparison with all peers.
func (b *bench) plainTargets(all []*contender) {
	b.against("end to end in process, against asynq", 4, all, inProcess)
	b.against("end to end over WebSocket with batch frames, against asynq", 2.5, all, batches)
	b.against("end to end over WebSocket with single frames, against asynq", 1.5, all, webSocket)
	ours := find(all, inProcess)
	if ours == nil {
		return
	}
	b.overBare("p50", ours, 2, func(t *load.Times) int64 { return t.P50 })
	b.overBare("p99", ours, 5, func(t *load.Times) int64 { return t.P99 })
	ratio := ours.median(func(r *round) float64 {
		if r.bare.P50 == 0 {
			return 0
		}
		return float64(r.one.Result.P50) / float64(r.bare.P50)
	})
	b.target("time to result of a job that does nothing, one at a time, in process / a bare EVALSHA, p50", result.Times, result.AtMost, 5, ratio,
		fmt.Sprintf("%s and %s with nothing beside", words(ours.median(func(r *round) float64 { return float64(r.one.Result.P50) })),
			words(ours.median(func(r *round) float64 { return float64(r.bare.P50) }))))
	own := ours.at(high, p99(assign))
	b.target("p99 time to assign at 80 % load", result.Microseconds, result.AtMost, 10_000, own, "")
	least, name := 0.0, ""
	for _, c := range all {
		if v := c.at(high, p99(start)); c.program != ours.program && v != nil && (name == "" || v[0] < least) {
			least, name = v[0], c.name
		}
	}
	if name != "" {
		b.target("p99 time to assign at 80 % load, against the least time to start of a peer", result.Microseconds, result.AtMost, least, own,
			"the least is "+name)
	}
}

// overBare is a ratio of percentiles of the same window, the median of the rounds.
func (b *bench) overBare(name string, c *contender, limit float64, of func(*load.Times) int64) {
	ratio := c.at(low, func(l *level) float64 {
		if l.Assign == nil || l.Bare == nil || of(l.Bare) == 0 {
			return 0
		}
		return float64(of(l.Assign)) / float64(of(l.Bare))
	})
	b.target("time to assign at 10 % load, "+name+" / that of a bare EVALSHA", result.Times, result.AtMost, limit, ratio,
		fmt.Sprintf("%s and %s beside the load; one with nothing beside takes %s", words(c.at(low, quantile(assign, of))),
			words(c.at(low, quantile(bare, of))), words(c.median(func(r *round) float64 { return float64(of(r.bare)) }))))
}

func (b *bench) awayTarget(all []*contender) {
	c := find(all, inProcess)
	if c == nil {
		return
	}
	b.target("time to assign at 10 % load, 1 ms away from Redis, p50", result.Microseconds, result.AtMost, 1300, c.at(low, p50(assign)),
		fmt.Sprintf("a bare EVALSHA takes %s beside the load and %s with nothing beside", words(c.at(low, p50(bare))),
			words(c.median(func(r *round) float64 { return float64(r.bare.P50) }))))
}

func words(us result.Figure) string {
	if us == nil {
		return "an unknown time"
	}
	return measure.Micros(int64(us[0]))
}

// fleetTargets are the targets of throughput and of its cost.
func (b *bench) fleetTargets(crews []*crew) {
	for _, t := range []struct {
		fleet
		name  string
		limit float64
	}{{fleetOf100, batches, 1.8}, {fleetOf400, batches, 2}, {fleetOf100, webSocket, 1.2}} {
		b.against(fmt.Sprintf("%s: %s, against asynq with as many servers", t.fleet, t.name), t.limit, of(crews, t.fleet).plain, t.name)
	}
	hundred := of(crews, fleetOf100).plain
	b.ratio(fleetOf100.String()+": CPU a job of Redis' thread, against asynq's", 0.65, find(hundred, batches), find(hundred, asynq), (*contender).redisUs)
	b.gatewayTargets(hundred)
	var peers []*contender // asynq's best of all fleets stands for it
	for _, c := range crews {
		if a := find(c.plain, asynq); a != nil && (peers == nil || a.throughput() > peers[0].throughput()) {
			peers = []*contender{a}
		}
	}
	two := of(crews, fleetOf2).plain
	b.against(fleetOf2.String()+": in process, against asynq's best of all fleets", 3.8, append(peers, two...), inProcess)
	b.ratio(fleetOf2.String()+": one at a time in process, p50 to result, against JetStream's", 1.1, find(two, inProcess), find(two, jetStream), (*contender).oneP50)
}

// gatewayTargets hold nodes by gateway against direct ones of the same fleet.
func (b *bench) gatewayTargets(all []*contender) {
	what := fleetOf100.String() + ": nodes by gateway, "
	linked, direct := find(all, byGateway), find(all, batches)
	b.against(what+"batch frames, against asynq with as many servers", 2, all, byGateway)
	b.faster(what+"batch frames, against direct nodes", 1.1, linked, direct)
	b.ratio(what+"CPU a job of Redis' thread, against direct nodes'", 0.75, linked, direct, (*contender).redisUs)
	var measured result.Figure
	note := ""
	if linked != nil && direct != nil {
		with, without, bare := linked.oneStartP50(), direct.oneStartP50(), direct.bareP50()
		if with != nil && without != nil && bare != nil {
			measured = result.Figure{measure.FourFigures((with[0] - without[0]) / bare[0])}
			note = fmt.Sprintf("%s and %s; a bare EVALSHA takes %s", words(with), words(without), words(bare))
		}
	}
	b.target(what+"one at a time, p50 to start above direct nodes', in bare round trips", result.Times, result.AtMost, 1, measured, note)
}

// ratio holds a time of ours against another one's.
func (b *bench) ratio(what string, limit float64, ours, theirs *contender, of func(*contender) result.Figure) {
	var measured result.Figure
	note := ""
	if ours != nil && theirs != nil && of(ours) != nil && of(theirs) != nil {
		measured = result.Figure{measure.FourFigures(of(ours)[0] / of(theirs)[0])}
		note = words(of(ours)) + " and " + words(of(theirs))
	}
	b.target(what, result.Times, result.AtMost, limit, measured, note)
}

// loadedTarget holds our time to start at 80 % against the least of the peers'.
func (b *bench) loadedTarget(all []*contender) {
	p99ToStart := func(c *contender) result.Figure { return c.at(high, p99(start)) }
	var least *contender
	for _, c := range all {
		if v := p99ToStart(c); c.program != system.Freeslot && v != nil && (least == nil || v[0] < p99ToStart(least)[0]) {
			least = c
		}
	}
	direct := find(all, batches)
	b.ratio(fleetOf100.String()+": p99 to start at 80 % of its own saturation, against the least peer's at 80 % of its own", 0.5, direct, least, p99ToStart)
	b.ratio(fleetOf100.String()+": nodes by gateway, p99 to start at 80 % of direct nodes' saturation, against direct nodes'", 1.2, find(all, byGateway), direct, p99ToStart)
}

// largeTargets are the targets with many nodes.
func (b *bench) largeTargets(direct, linked *contender) {
	what := fmt.Sprintf("%s, %s jobs/s: ", large, measure.Thousands(largeRate))
	b.target(what+"p99 to assign", result.Microseconds, result.AtMost, 10_000, direct.at(0, p99(assign)), "")
	b.target(what+"Redis busy", result.Percent, result.AtMost, 70, direct.redisBusy(), "")
	b.ratio(what+"nodes by gateway, CPU a job of Redis' thread, against direct nodes'", 0.65, linked, direct, (*contender).redisUs)
}

func (b *bench) beforeTarget(version string, before, this *contender) {
	b.ratio(fleetOf2.String()+": CPU a job of Redis' thread, against "+cmp.Or(version, "another commit"), 1, this, before, (*contender).redisUs)
}
