package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/e2e/result"
)

// The bounds of what can be asked for.
const (
	maxWindow   = 10 * time.Minute
	maxReplicas = 16
	maxNodes    = 1000
	maxSessions = 1000
	minPayload  = 2
	maxPayload  = 256 << 10
	maxSlots    = 1 << 16
)

// options are the command line.
type options struct {
	duration, warmUp time.Duration
	shape            shape
	payload          int
	aof              []string
	scenarios        []result.Scenario
	out, markdown    string
	report, check    bool
	args             []string
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	o := options{args: args}
	var aof string
	f := flag.NewFlagSet("e2e", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "Measures freeslot end to end: Redis, replicas and nodes as processes, jobs over WebSocket.\n\nUsage: go run -C bench ./e2e [flags]\n\n")
		f.PrintDefaults()
	}
	f.DurationVar(&o.duration, "duration", 10*time.Second, "how long each scenario is measured")
	f.DurationVar(&o.warmUp, "warmup", 2*time.Second, "how long each scenario runs before that")
	f.IntVar(&o.shape.replicas, "replicas", 1, "scheduler replicas, a process each")
	f.IntVar(&o.shape.nodes, "nodes", 4, "nodes, all in one process")
	f.IntVar(&o.shape.slots, "slots", 1024, "slots of each node")
	f.IntVar(&o.shape.sessions, "sessions", 4, "WebSocket sessions, spread over the replicas")
	f.IntVar(&o.payload, "payload", 256, "bytes of a job's payload")
	f.StringVar(&aof, "aof", "everysec", "append-only file: off, everysec, always, no; several separated by commas run one after the other")
	f.Func("scenario", "load to measure, repeatable: closed:64 (jobs in flight), closed:1024/64 (64 jobs a frame), open:2000 (jobs per second)\n(default "+listed(result.DefaultScenarios())+")", func(text string) error {
		s, err := result.ParseScenario(text)
		o.scenarios = append(o.scenarios, s)
		return err
	})
	f.StringVar(&o.out, "out", "results/e2e.json", "results file")
	f.StringVar(&o.markdown, "markdown", "RESULTS.md", "report file")
	f.BoolVar(&o.report, "report", false, "measure nothing; write the report from the results file")
	f.BoolVar(&o.check, "check", false, "measure nothing; exit 1 unless the report is what the results file gives")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag; see -help", f.Arg(0))
	}
	o.aof = strings.Split(aof, ",")
	if o.scenarios == nil {
		o.scenarios = result.DefaultScenarios()
	}
	return o, o.validate()
}

func (o *options) validate() error {
	var errs []error
	between := func(name string, value, low, high int) {
		if value < low || value > high {
			errs = append(errs, fmt.Errorf("-%s is %d, expected %d to %d", name, value, low, high))
		}
	}
	between("replicas", o.shape.replicas, 1, maxReplicas)
	between("nodes", o.shape.nodes, 1, maxNodes)
	between("slots", o.shape.slots, 1, maxSlots)
	between("sessions", o.shape.sessions, 1, maxSessions)
	between("payload", o.payload, minPayload, maxPayload)
	if o.duration < 100*time.Millisecond || o.duration > maxWindow {
		errs = append(errs, fmt.Errorf("-duration is %s, expected 100ms to %s", o.duration, maxWindow))
	}
	if o.warmUp < 0 || o.warmUp > maxWindow {
		errs = append(errs, fmt.Errorf("-warmup is %s, expected 0s to %s", o.warmUp, maxWindow))
	}
	for _, mode := range o.aof {
		if !slices.Contains([]string{aofOff, "everysec", "always", "no"}, mode) {
			errs = append(errs, fmt.Errorf("-aof has %q, expected off, everysec, always or no", mode))
		}
	}
	return errors.Join(errs...)
}

func listed(scenarios []result.Scenario) string {
	names := make([]string, 0, len(scenarios))
	for _, s := range scenarios {
		names = append(names, s.String())
	}
	return strings.Join(names, " ")
}
