// Command run measures this scheduler beside what users would pick instead, against what Redis could do at
// most, on a replayed trace, and as it grows. It starts its own servers; everything shares this machine.
//
//	go run -C bench ./peers/run                      everything, 10 rounds
//	go run -C bench ./peers/run -short               the same in minutes
//	go run -C bench ./peers/run -parts peers,limit   some of the parts
//	go run -C bench ./peers/run -trace FILE -nodes FILE
//
// bench/README.md says how each peer is run and why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/peers/result"
	"github.com/freeslot/freeslot/bench/report"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// allParts are in the order in which they run.
var allParts = []string{"limit", "peers", "always", "away", "scale", "replay"}

type options struct {
	parts         []string
	peers         string
	short         bool
	rounds        int
	window        time.Duration
	out, markdown string
	artefacts     string
	trace, nodes  string
	args          []string
}

// bench is what a part gets and what it fills in.
type bench struct {
	options
	root      string
	folder    string // temporary
	programs  map[string][]string
	missing   map[string]string // by program
	scheduler string
	run       result.Run
	stdout    io.Writer
	results   *result.Results
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
		fmt.Fprintln(stderr, "run:", err)
		return 2
	}
	if err := measureAll(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "run:", err)
		return 1
	}
	return 0
}

// recorded are the results that the report in the repository is made of.
const recorded = "results/peers.json"

func parseOptions(args []string, stderr io.Writer) (options, error) {
	o := options{args: args}
	var parts string
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&parts, "parts", strings.Join(allParts, ","), "what to measure")
	f.StringVar(&o.peers, "peers", "", "only the entries whose names contain one of these words, separated by commas")
	f.BoolVar(&o.short, "short", false, "small sweeps, 3 rounds and short windows: shows how things stand")
	f.IntVar(&o.rounds, "rounds", 0, "interleaved rounds (default 10, short 3)")
	f.DurationVar(&o.window, "window", 0, "what counts of each load (default 5s, short 1s)")
	f.StringVar(&o.out, "out", recorded, "results file; the parts that are run are replaced in it")
	f.StringVar(&o.markdown, "markdown", "RESULTS.md", "report file, written from all results files beside -out")
	f.StringVar(&o.artefacts, "artefacts", "../.dev/bench", "folder for CPU profiles")
	f.StringVar(&o.trace, "trace", "", "the trace to replay: a CSV file of the Azure LLM inference trace 2023")
	f.StringVar(&o.nodes, "nodes", "", "the fleet to replay it on: a CSV file of the Alibaba GPU trace 2023")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag; see -help", f.Arg(0))
	}
	o.parts = strings.Split(parts, ",")
	for _, p := range o.parts {
		if !slices.Contains(allParts, p) {
			return o, fmt.Errorf("-parts has %q, expected some of %s", p, strings.Join(allParts, ","))
		}
	}
	if (o.trace == "") != (o.nodes == "") {
		return o, errors.New("-trace and -nodes belong together")
	}
	if (o.short || o.peers != "") && o.out == recorded {
		return o, fmt.Errorf("-short and -peers would replace what is recorded in %s: name another file by -out, and -markdown", recorded)
	}
	if o.rounds == 0 {
		o.rounds = sized(o.short, 3, 10)
	}
	if o.window == 0 {
		o.window = sized(o.short, time.Second, 5*time.Second)
	}
	if o.rounds < 1 || o.rounds > 100 {
		return o, fmt.Errorf("-rounds is %d, expected 1 to 100", o.rounds)
	}
	if o.window < 100*time.Millisecond || o.window > 10*time.Minute {
		return o, fmt.Errorf("-window is %s, expected 100ms to 10m0s", o.window)
	}
	return o, nil
}

func sized[T any](short bool, small, large T) T {
	if short {
		return small
	}
	return large
}

// measureAll writes the file after each part, so that an interrupted run keeps what it has.
func measureAll(ctx context.Context, o options, stdout io.Writer) error {
	b := &bench{options: o, programs: make(map[string][]string), missing: make(map[string]string), stdout: stdout}
	var err error
	if b.root, err = measure.Root(ctx); err != nil {
		return err
	}
	if b.folder, err = os.MkdirTemp("", "freeslot-peers-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.folder) //nolint:errcheck // temporary
	if b.results, err = loadResults(o.out); err != nil {
		return err
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	if err := b.describe(ctx); err != nil {
		return err
	}
	parts := map[string]func(context.Context) error{
		"limit": b.limit, "scale": b.scale, "replay": b.replay,
		"peers": func(ctx context.Context) error { return b.mode(ctx, aofOff, 0, nil) },
		"always": func(ctx context.Context) error {
			return b.mode(ctx, "always", 0, []string{result.InProcess, result.Asynq})
		},
		"away": func(ctx context.Context) error {
			return b.mode(ctx, aofOff, awayBy, []string{result.InProcess, result.Asynq})
		},
	}
	for _, name := range allParts {
		if !slices.Contains(o.parts, name) {
			continue
		}
		fmt.Fprintf(stdout, "== %s\n", name)
		begin := time.Now()
		if err := parts[name](ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(stdout, "%s took %s\n", name, time.Since(begin).Round(time.Second))
		if err := b.write(); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "wrote %s and %s\n", o.out, o.markdown)
	if n := b.results.Failures(b.run.Date); n > 0 {
		return fmt.Errorf("%d jobs failed; the results file says of which peer and why", n)
	}
	return nil
}

func loadResults(path string) (*result.Results, error) {
	r := new(result.Results)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, measure.Decode(path, data, r)
}

func (b *bench) write() error {
	data, err := measure.Encode(b.results)
	if err != nil {
		return err
	}
	if err := measure.WriteFile(b.out, data); err != nil {
		return err
	}
	return report.Write(filepath.Dir(b.out), b.markdown)
}

func (b *bench) describe(ctx context.Context) error {
	b.run = result.Run{Machine: measure.Describe(ctx, "go run -C bench ./peers/run "+strings.Join(plainPaths(b.args), " "), b.root), Short: b.short, Postgres: postgresVersion(ctx)}
	if out, err := exec.CommandContext(ctx, "node", "--version").Output(); err == nil {
		b.run.Node = "Node " + strings.TrimSpace(string(out))
	}
	startCtx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	server := redisserver.New(redisserver.Config{})
	if err := server.Start(startCtx); err != nil {
		return err
	}
	version, err := func() (string, error) {
		var c rueidis.Client
		c, err := redisclient.Commands(redisclient.Config{URL: server.URL()})
		if err != nil {
			return "", err
		}
		defer c.Close()
		return measure.RedisVersion(ctx, c)
	}()
	b.run.Redis = version
	stopCtx, cancelStop := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancelStop()
	return errors.Join(err, server.Stop(stopCtx))
}

// plainPaths leaves out of the command line where files lie: that is nobody else's concern.
func plainPaths(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		flagName, path, found := strings.Cut(a, "=")
		switch {
		case found && strings.ContainsRune(path, filepath.Separator):
			out[i] = flagName + "=" + filepath.Base(path)
		case !found && strings.ContainsRune(a, filepath.Separator):
			out[i] = filepath.Base(a)
		}
	}
	return out
}

// runNow is the description of a part that began at begin.
func (b *bench) runNow(begin time.Time) result.Run {
	r := b.run
	r.Date = begin.UTC().Format(time.RFC3339)
	r.Seconds = measure.Rounded(time.Since(begin).Seconds())
	return r
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.stdout, "  "+format+"\n", args...) }
