// Command core measures what the README and docs/decisions promise of single parts: choosing a
// node, how fast and at what price replicas know the fleet, how busy slots are kept, how fair the
// queue is, what idle agents and backups cost, what gateways do for theirs, and what users pay all
// day.
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
	"os"

	"github.com/freeslot/freeslot/bench/tool"
)

func main() { os.Exit(newTool().Main()) }

var modes = map[string]tool.Mode{observerMode: observe, agentsMode: runAgents, lightMode: runLights, relayMode: runRelayProgram}

func newTool() *tool.Tool {
	var f daily
	return &tool.Tool{
		Name: "core", Folder: "core", About: "Measures what is promised of choices, the cache, queues and agents.", Modes: modes,
		Flags: f.flags, Check: f.check,
		Parts: []tool.Part{
			{Name: "choose", About: "choices from raw requirements while heartbeat events are applied", Run: runChoose},
			{Name: "staleness", About: "from a script's commit to the change seen in another process", Run: runStaleness},
			{Name: "memory", About: "resident memory of a replica with its nodes cached", Run: runMemory},
			{Name: "conflicts", About: "reservations that four replicas refuse each other", Run: runConflicts},
			{Name: "utilisation", About: "slots kept busy while jobs wait", Run: runUtilisation},
			{Name: "fairness", About: "the wait of a tenant beside another's flood", Run: runFairness},
			{Name: "agentidle", About: "what an agent with nothing to do takes", Run: runAgentIdle},
			{Name: "agentcalls", About: "what an agent waits for at 1,000 jobs/s, and a replica's processor time", Run: runAgentCalls},
			{Name: "agentfleet", About: "what many agents with nothing to do cost Redis", Run: runAgentFleet},
			{Name: "tokens", About: "what a submit costs with each kind of token, with and without quotas", Run: runTokens},
			{Name: "demand", About: "what a replica adds to tell how many slots jobs need", Run: runDemand},
			{Name: "backup", About: "a backup and its restore, and what a backup does to jobs", Run: runBackup},
			{Name: "gateway", About: "agents through gateways: at rest, when a gateway dies, on a slow line", Run: runGateway},
			{Name: "day", About: "what users pay all day, before and after: idle replicas and fleets, nodes by gateway", Run: f.run},
			{Name: "starts", About: "10,000 agents by two gateways, started again and again, plain and TLS", Run: f.runStarts},
			{Name: "large", About: "10,000 to 30,000 agents by two gateways at rest", Run: runLarge},
		},
	}
}
