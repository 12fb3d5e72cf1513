package main

import (
	"context"
	"fmt"
	"io"

	"github.com/freeslot/freeslot/bench/core/result"
)

// scenario is something that can be measured alone.
type scenario struct {
	name  string
	about string
	run   func(ctx context.Context, b *bench) error
}

// scenarios are in the order of the report. It is filled by init, because they refer to each other's names.
var scenarios []*scenario

func init() {
	scenarios = []*scenario{
		{"choose", "choices from raw requirements while heartbeat events are applied", runChoose},
		{"baseline", "the same choices on the lock-based designs", runBaseline},
		{"apply", "the application of node events, decoding included", runApply},
		{"staleness", "from a script's commit to the change seen in another process", runStaleness},
		{"cuts", "changes while connections are cut at random", runCuts},
		{"memory", "resident memory of a replica with its nodes cached", runMemory},
		{"coldstart", "from the start of a replica's process to readiness", runColdStart},
		{"conflicts", "reservation conflicts of four replicas under a replayed load", runConflicts},
		{"scripts", "Redis' time for a heartbeat and a registration, against a fixed script of five commands", runScripts},
		{"batching", "submits of many goroutines through natural batching, against one script call a job", runBatching},
		{"utilisation", "slots kept busy while jobs wait", runUtilisation},
		{"fairness", "the wait of a tenant beside another's flood", runFairness},
		{"agentidle", "what an agent with nothing to do takes", runAgentIdle},
		{"agentfleet", "what many agents with nothing to do cost Redis", runAgentFleet},
		{"agentoverhead", "what an agent adds to a job beyond Redis' round trips", runAgentOverhead},
		{"agentbusy", "how late heartbeats are while all processors are busy", runAgentBusy},
	}
}

func names() []string {
	out := make([]string, 0, len(scenarios))
	for _, s := range scenarios {
		out = append(out, s.name)
	}
	return out
}

// bench is what a scenario gets and what it fills in.
type bench struct {
	options
	root   string // of the module
	folder string // temporary
	out    io.Writer
	result result.Scenario
}

// say adds a line to the method.
func (b *bench) say(format string, args ...any) {
	b.result.Method = append(b.result.Method, fmt.Sprintf(format, args...))
}

func (b *bench) target(what string, unit result.Unit, bound result.Bound, limit, measured float64) {
	b.result.Targets = append(b.result.Targets, result.Target{What: what, Unit: unit, Bound: bound, Limit: limit, Measured: rounded(measured)})
}

// progress tells whoever waits.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(b.out, "  "+format+"\n", args...)
}

// sized is long, or short in a short run.
func sized[T any](b *bench, long, short T) T {
	if b.short {
		return short
	}
	return long
}
