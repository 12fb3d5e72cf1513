// Command sim simulates a fleet of replicas and nodes, event by event, on the real code that
// chooses nodes (internal/selection). It answers how often replicas with late views take each
// other's slots (conflicts), in fleets that no test machine holds. The same flags give the same
// result.
//
//	go run -C bench ./sim -trace requests.csv -nodes nodes.csv
//
// The trace is the Azure LLM inference trace of 2023 (conversation), the node list that of the
// Alibaba GPU cluster trace of 2023.
//
// # The model
//
// Each replica has a view, one selection.Node for each node, and its own random source. The truth
// is one count of used slots a node.
//
//	arrival --choose (real), take--> batch --up--> script on the truth --down--> confirm or refuse, next round
//	                                                  |  node became full: event
//	              slot held: duration <---------------+
//	completion on the truth --> reply to the submitting replica alone (slots used now)
//	                        --> node was full: event
//	heartbeat each interval --> event
//
// As in internal/dispatch: jobs that come together can be placed as a batch; a job names up to two
// candidates; the first one is taken in the view while the call is under way, and the answer
// confirms or corrects the view; a refused job is offered anew without the nodes that refused it; a
// job that finds all nodes full offers itself once to nodes that seem full, and is overloaded after
// that. As in internal/cell: two calls of a replica are under way at a time, or eight of few jobs,
// and the next gathers meanwhile. As in internal/cache: events of a replica arrive in order; each
// carries the slots in use and overwrites what the view has.
//
// What makes conflicts is thus in the model: the time from a slot's taking to the event's arrival
// elsewhere, views of nodes with several slots that are wrong until the next heartbeat, reply or
// crossing, and replies that overtake events or are overtaken by them, which come on other
// connections.
//
// Left out: nodes that come, go or drain; jobs of several slots; several cells; queues; lost
// events; failures, and the time that Redis itself takes.
//
// Views are not shared: a replica has its own selection.Node of each node, since that is what the
// real code reads. 100 replicas of 100,000 nodes take about 1 GiB.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/plot"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

// mostParallel keeps the largest runs, of a gibibyte each, within a usual machine.
const mostParallel = 4

func main() { os.Exit(newTool().Main()) }

// options are the command line.
type options struct {
	trace, nodes string
	seed         uint64
	parallel     int
}

func newTool() *tool.Tool {
	o := new(options)
	figure := func(f func(*inputs) figure) func(context.Context, *tool.Bench) {
		return func(_ context.Context, b *tool.Bench) { o.run(b, f) }
	}
	return &tool.Tool{
		Name: "sim", Folder: "sim", About: "Simulates replicas and nodes on the real selection code.",
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&o.trace, "trace", "", "file: requests of the Azure LLM inference trace of 2023 (CSV)")
			f.StringVar(&o.nodes, "nodes", "", "file: node list of the Alibaba GPU cluster trace of 2023 (CSV)")
			f.Uint64Var(&o.seed, "seed", 1, "seed: the same one gives the same results")
			f.IntVar(&o.parallel, "parallel", min(runtime.NumCPU(), mostParallel), "simulations at once; the largest take 1 GiB each")
		},
		Check: func() error {
			switch {
			case o.trace == "" || o.nodes == "":
				return errors.New("-trace and -nodes are missing: both are needed")
			case o.parallel < 1:
				return fmt.Errorf("-parallel is %d, expected at least 1", o.parallel)
			}
			return nil
		},
		Parts: []tool.Part{
			{Name: "delay", About: "conflicts over the delay of events, up to 100 replicas", Run: figure((*inputs).delay)},
			{Name: "size", About: "conflicts over the size of the fleet, up to 100,000 nodes", Run: figure((*inputs).size)},
			{Name: "batches", About: "jobs that come together, placed one by one and in groups", Run: func(_ context.Context, b *tool.Bench) { o.batches(b) }},
		},
	}
}

// run makes a figure: its simulations, the plot, and a table.
func (o *options) run(b *tool.Bench, of func(*inputs) figure) {
	in := &inputs{seed: o.seed, short: b.Short, requests: tool.Must(openRequests(o.trace)), nodes: tool.Must(openNodes(o.nodes))}
	f := of(in)
	outcomes := tool.Must(simulateAll(f.points, o.parallel))
	b.Result.Method = append(in.method(), f.method...)
	f.fill(b, outcomes)
	b.Result.Tables = []result.Table{f.table()}
	b.Draw(b.Result.Name+".svg", &f.plot)
}

// simulateAll makes all runs, as many at once as parallel.
func simulateAll(points []point, parallel int) ([]*outcome, error) {
	outcomes := make([]*outcome, len(points))
	return outcomes, measure.InParallel(parallel, len(points), func(i int) (err error) {
		outcomes[i], err = simulate(points[i].cfg)
		return err
	})
}

// fill adds the conflict rates to the plot's lines, and has the report count what must not be.
func (f *figure) fill(b *tool.Bench, outcomes []*outcome) {
	overCommits, leaks := 0.0, 0.0
	for i, p := range f.points {
		at := slices.IndexFunc(f.plot.Lines, func(l plot.Line) bool { return l.Name == p.line })
		if at < 0 {
			at = len(f.plot.Lines)
			f.plot.Lines = append(f.plot.Lines, plot.Line{Name: p.line})
		}
		line := &f.plot.Lines[at]
		line.Points = append(line.Points, plot.Point{X: p.x, Y: outcomes[i].conflictRate()})
		overCommits += float64(outcomes[i].counts.overCommits)
		if len(outcomes[i].leaks) > 0 {
			leaks++
		}
	}
	b.Target("over-commits", result.Number, result.Exactly, 0, overCommits)
	b.Target("runs that left a slot, a job or a reservation behind", result.Number, result.Exactly, 0, leaks)
}

// table shows the lines side by side: all have the same x.
func (f *figure) table() result.Table {
	t := result.Table{Title: "Refused of all reservations that were tried", First: f.plot.X.Label}
	for _, l := range f.plot.Lines {
		t.Columns = append(t.Columns, result.Column{Name: l.Name, Unit: result.Percent})
	}
	for i, p := range f.plot.Lines[0].Points {
		var row []any
		for _, l := range f.plot.Lines {
			row = append(row, 100*l.Points[i].Y)
		}
		t.Add(strconv.FormatFloat(p.X, 'f', -1, 64), row...)
	}
	return t
}
