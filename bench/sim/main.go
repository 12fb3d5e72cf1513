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
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

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
	figure := func(f func(*inputs) figure) func(context.Context, *tool.Bench) error {
		return func(_ context.Context, b *tool.Bench) error { return o.run(b, f) }
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
			{Name: "batches", About: "jobs that come together, placed one by one and in groups", Run: func(_ context.Context, b *tool.Bench) error { return o.batches(b) }},
		},
	}
}

// run makes a figure: its simulations, the plot, and a table.
func (o *options) run(b *tool.Bench, of func(*inputs) figure) error {
	in := &inputs{seed: o.seed, short: b.Short}
	var err error
	if in.requests, err = openRequests(o.trace); err != nil {
		return err
	}
	if in.nodes, err = openNodes(o.nodes); err != nil {
		return err
	}
	f := of(in)
	outcomes, err := simulateAll(f.points, o.parallel)
	if err != nil {
		return err
	}
	b.Result.Method = append(in.method(), f.method...)
	overCommits, leaks := f.fill(outcomes)
	b.Target("over-commits", result.Number, result.Exactly, 0, overCommits)
	b.Target("runs that left a slot, a job or a reservation behind", result.Number, result.Exactly, 0, leaks)
	b.Result.Tables = []result.Table{f.table()}
	svg, err := plot.SVG(&f.plot)
	if err != nil {
		return err
	}
	file := b.Result.Name + ".svg"
	b.Result.Plots = []result.Plot{{Title: f.plot.Title, File: file}}
	return measure.WriteFile(filepath.Join(b.Results, file), svg)
}

// simulateAll makes all runs, as many at once as parallel. The error is the first point's that
// failed.
func simulateAll(points []point, parallel int) ([]*outcome, error) {
	outcomes, errs := make([]*outcome, len(points)), make([]error, len(points))
	next := make(chan int)
	var runners sync.WaitGroup
	for range parallel {
		runners.Go(func() {
			for i := range next {
				outcomes[i], errs[i] = simulate(points[i].cfg)
			}
		})
	}
	for i := range points {
		next <- i
	}
	close(next)
	runners.Wait()
	return outcomes, errors.Join(errs...)
}

// fill adds the conflict rates to the plot's lines, and counts what must not be.
func (f *figure) fill(outcomes []*outcome) (overCommits, leaks float64) {
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
	return overCommits, leaks
}

// table shows the lines side by side: all have the same x.
func (f *figure) table() result.Table {
	t := result.Table{Title: "Refused of all reservations that were tried", First: f.plot.X.Label}
	for _, l := range f.plot.Lines {
		t.Columns = append(t.Columns, result.Column{Name: l.Name, Unit: result.Percent})
	}
	for i, p := range f.plot.Lines[0].Points {
		row := result.Row{Name: strconv.FormatFloat(p.X, 'f', -1, 64)}
		for _, l := range f.plot.Lines {
			row.Figures = append(row.Figures, result.Figure{measure.FourFigures(100 * l.Points[i].Y)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
