package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/bench/sim"
)

// mostParallel keeps the largest runs, of a gibibyte each, within a usual machine.
const mostParallel = 4

// options are the command line.
type options struct {
	trace, nodes string
	figures      []string
	measured     []string
	out          string
	seed         uint64
	parallel     int
	quick        bool
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("sim", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "Simulates replicas and nodes on the real selection code.\n\nUsage: go run -C bench ./sim/run [flags]\n\n")
		f.PrintDefaults()
	}
	f.StringVar(&o.trace, "trace", "", "file: requests of the Azure LLM inference trace of 2023 (CSV)")
	f.StringVar(&o.nodes, "nodes", "", "file: node list of the Alibaba GPU cluster trace of 2023 (CSV)")
	f.Func("figure", "figure to make, repeatable: "+strings.Join(sim.FigureNames(), ", ")+" (default all, or none with -reproduce)", func(name string) error {
		if !slices.Contains(sim.FigureNames(), name) {
			return fmt.Errorf("expected one of %s", strings.Join(sim.FigureNames(), ", "))
		}
		o.figures = append(o.figures, name)
		return nil
	})
	f.Func("reproduce", "file: a measured run whose conflicts to predict, repeatable; exit 1 unless within a factor of 1.5", func(path string) error {
		o.measured = append(o.measured, path)
		return nil
	})
	f.StringVar(&o.out, "out", "results/sim.json", "results file; plots are written beside it")
	f.Uint64Var(&o.seed, "seed", 1, "seed: the same one gives the same results")
	f.IntVar(&o.parallel, "parallel", min(runtime.NumCPU(), mostParallel), "simulations at once; the largest take 1 GiB each")
	f.BoolVar(&o.quick, "quick", false, "small fleets and few jobs, in seconds: shows that it works")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag; see -help", f.Arg(0))
	}
	if o.figures == nil && o.measured == nil {
		o.figures = sim.FigureNames()
	}
	return o, o.validate()
}

func (o *options) validate() error {
	var errs []error
	if len(o.figures) > 0 && (o.trace == "" || o.nodes == "") {
		errs = append(errs, errors.New("figures need -trace and -nodes"))
	}
	if o.parallel < 1 {
		errs = append(errs, fmt.Errorf("-parallel is %d, expected at least 1", o.parallel))
	}
	return errors.Join(errs...)
}

// shown is the command line that makes one figure, for readers: without the folders of their files.
func (o *options) shown(figure string) []string {
	args := []string{"-trace", filepath.Base(o.trace), "-nodes", filepath.Base(o.nodes), "-figure", figure}
	if o.seed != 1 {
		args = append(args, "-seed", fmt.Sprint(o.seed))
	}
	if o.quick {
		args = append(args, "-quick")
	}
	return args
}
