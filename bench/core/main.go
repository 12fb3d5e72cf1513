// Command core measures what the README and docs/decisions promise of single parts: choosing a
// node, how fast and at what price replicas know the fleet, how busy slots are kept, how fair the
// queue is, what idle agents cost, and what gateways do for theirs.
//
//	go run -C bench ./core                            everything, into bench/results/core.json and bench/RESULTS.md
//	go run -C bench ./core -parts choose,staleness    only these; the file keeps its figures of the others
//	go run -C bench ./core -list                      the parts
//	go run -C bench ./core -short                     everything in about a minute; shows that it works, not how fast
//
// Figures that are compared with each other are measured in the same run, in turns, and are medians
// over the turns.
package main

import (
	"context"
	"os"

	"github.com/freeslot/freeslot/bench/tool"
)

func main() {
	if len(os.Args) > 1 {
		if child, ok := children[os.Args[1]]; ok {
			os.Exit(runChild(child, os.Args[2:]))
		}
	}
	os.Exit(newTool().Main())
}

func newTool() *tool.Tool {
	part := func(name, about string, run func(context.Context, *tool.Bench) error) tool.Part {
		return tool.Part{Name: name, About: about, Run: func(ctx context.Context, b *tool.Bench) { tool.Check(run(ctx, b)) }}
	}
	return &tool.Tool{
		Name: "core", Folder: "core", About: "Measures what is promised of choices, the cache, queues and agents.",
		Parts: []tool.Part{
			part("choose", "choices from raw requirements while heartbeat events are applied", runChoose),
			part("staleness", "from a script's commit to the change seen in another process", runStaleness),
			part("memory", "resident memory of a replica with its nodes cached", runMemory),
			part("conflicts", "reservations that four replicas refuse each other", runConflicts),
			part("utilisation", "slots kept busy while jobs wait", runUtilisation),
			part("fairness", "the wait of a tenant beside another's flood", runFairness),
			part("agentidle", "what an agent with nothing to do takes", runAgentIdle),
			part("agentcalls", "what an agent waits for at 1,000 jobs/s, and a replica's processor time", runAgentCalls),
			part("agentfleet", "what many agents with nothing to do cost Redis", runAgentFleet),
			part("gateway", "agents through gateways: at rest, when a gateway dies, on a slow line", runGateway),
		},
	}
}
