package main

import (
	"context"
	"fmt"

	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// settings are the same loads for each of these flags of a worker.
func settings(load string, workers ...string) (out []setting) {
	for _, worker := range workers {
		for _, l := range [][2]int{{256, 16}, {64, 16}, {1024, 64}} {
			out = append(out, setting{worker: worker, load: load, inFlight: l[0], batch: l[1]})
		}
	}
	return out
}

func runWorker(ctx context.Context, b *tool.Bench, l tool.Length) {
	p := programs(ctx, b, "python")
	flags := fmt.Sprintf("-slots %d", slots)
	inGo := &contender{
		name: "Go worker", worker: system.Freeslot, load: system.Freeslot, gateway: true,
		settings: settings("-sessions 4", "-nodes 1 "+flags),
	}
	coroutine := &contender{
		name: "Python worker, coroutines", worker: "python", load: system.Freeslot, gateway: true,
		settings: settings("-sessions 4", "-handler coroutine "+flags),
	}
	thread := &contender{
		name: "Python worker, plain functions", worker: "python", load: system.Freeslot, gateway: true,
		settings: settings("-sessions 4", "-handler thread "+flags),
	}
	all := []*contender{inGo, coroutine, thread}
	celery := &contender{
		name: "Celery", worker: "celery", load: system.CeleryLoad,
		settings: settings("", "-pool prefork -concurrency 16", "-pool threads -concurrency 16"),
	}
	err := p.BuildPeer(ctx, "celery", b.Root, b.Folder)
	if err == nil {
		all = append(all, celery)
	} else {
		b.Say("Celery was left out: it is not installed.")
		b.Progress("without Celery: %v", err)
	}
	b.Say("Jobs that do nothing, payload of 256 bytes, one node of %d slots by the gateway of one replica, the Go client "+
		"in front. Closed loops, windows of %s.", slots, l.Window)
	if err == nil {
		b.Say("Celery %s has %d processes or threads, the better of both. It acknowledges early, its default. Its tasks and "+
			"their results are in the same kind of Redis; a program in Go submits them.",
			system.PeerVersion(ctx, b.Root, "celery"), slots)
	}
	b.Say("Each one runs with the load and the settings that did most jobs a second; so it is in the table.")
	compete(ctx, b, p, l, all)
	faster(b, "Python worker with coroutines, against the Go worker", 0.25, coroutine, inGo)
	faster(b, "Python worker with plain functions, against the Go worker", 0.25, thread, inGo)
	if err == nil {
		faster(b, "Python worker with coroutines, against Celery", 3, coroutine, celery)
		faster(b, "Python worker with plain functions, against Celery", 3, thread, celery)
	}
}

// programs builds what all parts need, and the peers' programs. Without one of these the part is
// left out.
func programs(ctx context.Context, b *tool.Bench, peers ...string) *system.Programs {
	p := tool.Must(system.Build(ctx, b.Root, b.Folder))
	for _, peer := range peers {
		if err := p.BuildPeer(ctx, peer, b.Root, b.Folder); err != nil {
			tool.Check(fmt.Errorf("%w: %w", tool.ErrLeftOut, err))
		}
	}
	redis := tool.Must(system.StartRedis(ctx, system.AOFOff))
	b.NoteServer(ctx, redis, system.AOFOff)
	tool.Check(redis.Stop())
	return p
}
