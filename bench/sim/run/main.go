// Command run makes the simulated figures, and holds the simulation against measured runs.
//
//	go run -C bench ./sim/run -trace requests.csv -nodes nodes.csv                  all figures
//	go run -C bench ./sim/run -trace requests.csv -nodes nodes.csv -figure delay    one of them: delay, size, queue, spread
//	go run -C bench ./sim/run -trace requests.csv -reproduce measured.json          predict the conflicts of a measured run
//
// Results go to bench/results/sim.json, plots beside it as <figure>.svg; figures that were not asked for stay as
// they are there. The trace is the Azure LLM inference trace of 2023 (conversation), the node list that of the
// Alibaba GPU cluster trace of 2023.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/sim"
	"github.com/freeslot/freeslot/bench/sim/draw"
	"github.com/freeslot/freeslot/bench/trace"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "sim:", err)
		return 2
	}
	if err := simulate(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "sim:", err)
		return 1
	}
	return 0
}

// simulate does what was asked for, and keeps what it has even where something is wrong with it.
func simulate(ctx context.Context, o options, stdout io.Writer) error {
	results, err := readResults(o.out)
	if err != nil {
		return err
	}
	in := sim.Inputs{Seed: o.seed, Quick: o.quick, Parallel: o.parallel}
	if o.trace != "" {
		if in.Requests, err = trace.OpenRequests(o.trace); err != nil {
			return err
		}
	}
	if o.nodes != "" {
		if in.Nodes, err = trace.OpenNodes(o.nodes); err != nil {
			return err
		}
	}
	var wrong error
	for _, name := range o.figures {
		err := makeFigure(ctx, o, name, &in, results, stdout)
		if errors.Is(err, errFaults) {
			wrong, err = errors.Join(wrong, err), nil
		}
		if err != nil {
			return err
		}
	}
	if len(o.measured) > 0 {
		results.Reproduced = nil
	}
	for _, path := range o.measured {
		p, err := reproduce(path, &in, stdout)
		if err != nil {
			return err
		}
		results.Reproduced = append(results.Reproduced, *p)
		if err := p.Check(); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", path, err))
		}
	}
	data, err := measure.Encode(results)
	if err == nil {
		err = measure.WriteFile(o.out, data)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "wrote %s\n", o.out)
	return wrong
}

// readResults reads the results of earlier runs; a file that is not there has none.
func readResults(path string) (*sim.Results, error) {
	r := new(sim.Results)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, measure.Decode(path, data, r)
}

var errFaults = errors.New("over-commits, or something left behind")

func makeFigure(ctx context.Context, o options, name string, in *sim.Inputs, results *sim.Results, stdout io.Writer) error {
	f, err := sim.Make(name, in)
	if err != nil {
		return err
	}
	root, err := measure.Root(ctx)
	if err != nil {
		return err
	}
	f.Machine = measure.Describe(ctx, "go run -C bench ./sim/run "+strings.Join(o.shown(name), " "), root)
	svg, err := draw.SVG(&f)
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(o.out), name+".svg")
	if err := measure.WriteFile(path, svg); err != nil {
		return err
	}
	results.Put(f)
	fmt.Fprintf(stdout, "wrote %s\n", path)
	if overCommits, leaks := f.Faults(); overCommits != 0 || leaks != 0 {
		return fmt.Errorf("figure %s: %w: %d over-commits, %d runs", name, errFaults, overCommits, leaks)
	}
	return nil
}

func reproduce(path string, in *sim.Inputs, stdout io.Writer) (*sim.Reproduction, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := sim.ReadMeasured(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p, err := sim.Reproduce(m, in.Requests, in.Seed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	fmt.Fprintf(stdout, "%s: conflict rate measured %.4g %% (%d conflicts), predicted %.4g %% (%.4g to %.4g %% in %d runs), factor %.2f\n",
		path, p.Measured*100, p.Conflicts, p.Predicted*100, p.PredictedLow*100, p.PredictedHigh*100, p.Runs, p.Factor)
	fmt.Fprintf(stdout, "  busy %.1f %% measured, %.1f %% predicted; jobs a call %.2f and %.2f; slots held %.2f ms beyond the handlers' time\n",
		p.MeasuredBusy*100, p.PredictedBusy*100, p.MeasuredBatch, p.PredictedBatch, p.OverheadMS)
	return p, nil
}
