package main

import (
	"context"
	"fmt"

	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func runTypeScript(ctx context.Context, b *tool.Bench, l tool.Length) {
	p := programs(ctx, b, "typescript")
	node := tool.Must(system.Output(ctx, b.Root, p.Commands["typescript"][0], "--version"))
	flags := fmt.Sprintf("-slots %d", slots)
	client := &contender{
		name: "TypeScript client, Go worker", worker: system.Freeslot, load: "typescript", gateway: true,
		settings: settings("-sessions 1", "-nodes 1 "+flags),
	}
	both := &contender{
		name: "TypeScript client and worker", worker: "typescript", load: "typescript", gateway: true,
		settings: settings("-sessions 1", flags),
	}
	bullMQ := &contender{name: "BullMQ", worker: "bullmq", load: "bullmq"}
	for _, pipeline := range []string{"1", "0"} {
		worker := fmt.Sprintf("-workers 1 -concurrency %d", slots)
		bullMQ.settings = append(bullMQ.settings, settings("-pipeline "+pipeline, worker)...)
	}
	b.Say("Jobs that do nothing, payload of 256 bytes, in batch frames, one node of %d slots by the gateway of one replica. "+
		"BullMQ %s submits by addBulk; its worker has a concurrency of %d. All of them in Node %s. Closed loops, windows of %s.",
		slots, system.PeerVersion(ctx, b.Root, "bullmq"), slots, node, l.Window)
	b.Say("Each one runs with the load that did most jobs a second; so it is in the table. The target is held with a Go worker: " +
		"it is about the client.")
	compete(ctx, b, p, l, []*contender{client, both, bullMQ})
	faster(b, "TypeScript client in batch frames, against BullMQ", 1.5, client, bullMQ)
}
