// Command gate compares this tree with another commit, end to end: throughput, and the processor
// time of a job by process.
//
//	gate -base main                    the working tree beside main
//	gate -base HEAD~2 -this HEAD~1     two commits, without a checkout
//
// Each tree is measured by its own load programs, bench/peers/freeslot. The gate relies on their
// command line and lines of JSON alone, so it works across commits that move packages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
)

type options struct {
	base, this   string
	basePGO, pgo string
	rounds       int
	window       time.Duration
	nodes, slots int
	limit        float64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "gate:", err)
		return 2
	}
	if err := compare(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "gate:", err)
		return 1
	}
	return 0
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("gate", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.base, "base", "", "the commit to compare with")
	f.StringVar(&o.this, "this", "", "the commit to judge (default: the working tree)")
	f.StringVar(&o.basePGO, "base-pgo", "auto", "how base is built: auto (with a default.pgo where there is one) or off")
	f.StringVar(&o.pgo, "pgo", "auto", "how this side is built: auto or off")
	f.IntVar(&o.rounds, "rounds", 10, "interleaved runs of each side")
	f.DurationVar(&o.window, "window", 3*time.Second, "what counts of each run")
	f.IntVar(&o.nodes, "nodes", 4, "nodes, all in one process")
	f.IntVar(&o.slots, "slots", 1024, "slots of each node")
	f.Float64Var(&o.limit, "limit", 0, "fail when jobs/s are below this times base, or CPU a job above base divided by this (0: never)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag; see -help", f.Arg(0))
	case o.base == "":
		return o, errors.New("-base is missing: the commit to compare with")
	case o.rounds < 1 || o.rounds > 100:
		return o, fmt.Errorf("-rounds is %d, expected 1 to 100", o.rounds)
	case o.window < 100*time.Millisecond || o.window > 10*time.Minute:
		return o, fmt.Errorf("-window is %s, expected 100ms to 10m0s", o.window)
	case o.nodes < 1 || o.slots < 1:
		return o, fmt.Errorf("-nodes is %d and -slots is %d, expected at least 1", o.nodes, o.slots)
	case o.limit < 0 || o.limit > 1:
		return o, fmt.Errorf("-limit is %g, expected 0 to 1", o.limit)
	}
	for _, pgo := range []string{o.basePGO, o.pgo} {
		if pgo != "auto" && pgo != "off" {
			return o, fmt.Errorf("profile-guided optimisation is %q, expected auto or off", pgo)
		}
	}
	return o, nil
}

// compare measures both sides in turns and prints the table.
func compare(ctx context.Context, o options, stdout, stderr io.Writer) error {
	root, err := measure.Root(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "freeslot-gate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // temporary
	base := &side{name: "base", commit: o.base, pgo: o.basePGO}
	this := &side{name: "this", commit: o.this, pgo: o.pgo}
	for _, s := range []*side{base, this} {
		fmt.Fprintf(stderr, "building %s\n", s.name)
		if err := s.build(ctx, root, folder); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fmt.Fprintf(stdout, "base %s (PGO %s), this %s (PGO %s); %d rounds of %s, %d nodes of %d slots\n",
		base.version, base.pgo, this.version, this.pgo, o.rounds, o.window, o.nodes, o.slots)
	tables := []*table{{mode: overWebSocket}, {mode: inProcess}}
	for round := range o.rounds {
		for _, t := range tables {
			if err := t.round(ctx, o, base, this, round); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, t.mode, err)
			}
			fmt.Fprintf(stderr, "round %d of %d, %s\n", round+1, o.rounds, t.latest())
		}
	}
	var failed error
	for _, t := range tables {
		fmt.Fprint(stdout, t)
		failed = errors.Join(failed, t.check(o.limit))
	}
	return failed
}

// round measures both sides once, one right after the other. Who goes first changes from round to
// round.
func (t *table) round(ctx context.Context, o options, base, this *side, round int) error {
	first, second := base, this
	if round%2 == 1 {
		first, second = this, base
	}
	got := make(map[*side][]figure)
	for _, s := range []*side{first, second} {
		var err error
		if got[s], err = s.measure(ctx, t.mode, o); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	t.add(got[base], got[this])
	return nil
}
