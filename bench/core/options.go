package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxRate is beyond what one machine can carry.
const maxRate = 1_000_000

// options are the command line.
type options struct {
	scenarios     []*scenario
	list          bool
	short         bool
	out, markdown string
	trace, nodes  string
	rate          int
	profile       string
	args          []string
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	o := options{args: args}
	var wanted string
	f := flag.NewFlagSet("core", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "Measures the core: choices, the cache and the scripts.\n\nUsage: go run -C bench ./core [flags]\n\n")
		f.PrintDefaults()
	}
	f.StringVar(&wanted, "run", "", "scenarios, separated by commas; empty is all: "+strings.Join(names(), " "))
	f.BoolVar(&o.list, "list", false, "list the scenarios")
	f.BoolVar(&o.short, "short", false, "a short run of each, which shows that it works and not how fast it is")
	f.StringVar(&o.out, "out", "results/core.json", "results file; the scenarios that are run are replaced in it")
	f.StringVar(&o.markdown, "markdown", "RESULTS.md", "report file, written from all results files beside -out")
	f.StringVar(&o.trace, "trace", "", "durations for conflicts: a CSV file of the Azure LLM inference trace 2023; empty: made-up ones")
	f.StringVar(&o.nodes, "nodes", "", "node list for conflicts: a CSV file of the Alibaba GPU trace 2023; empty: made-up ones")
	f.IntVar(&o.rate, "rate", conflictRate, "arrivals a second for conflicts; the target is judged at the default")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of the measured part of choose or apply to this file")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag; see -help", f.Arg(0))
	}
	if (o.trace == "") != (o.nodes == "") {
		return o, errors.New("-trace and -nodes belong together")
	}
	if o.rate < 1 || o.rate > maxRate {
		return o, fmt.Errorf("-rate is %d, expected 1 to %d", o.rate, maxRate)
	}
	var err error
	o.scenarios, err = pick(wanted)
	return o, err
}

// pick finds the scenarios by name; none means all.
func pick(wanted string) ([]*scenario, error) {
	if wanted == "" {
		return scenarios, nil
	}
	var out []*scenario
	for _, name := range strings.Split(wanted, ",") {
		i := slices.Index(names(), name)
		if i < 0 {
			return nil, fmt.Errorf("-run has %q, expected some of %s", name, strings.Join(names(), ","))
		}
		out = append(out, scenarios[i])
	}
	return out, nil
}
