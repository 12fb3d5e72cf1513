package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/freeslot/freeslot/bench/e2e/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/report"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == fleetMode {
		if err := runFleet(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
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
		fmt.Fprintln(stderr, "e2e:", err)
		return 2
	case o.check:
		err = report.Check(filepath.Dir(o.out), o.markdown)
	case o.report:
		err = report.Write(filepath.Dir(o.out), o.markdown)
	default:
		err = measureAll(ctx, o, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "e2e:", err)
		return 1
	}
	return 0
}

// measureAll runs every scenario on every kind of Redis and writes results and report.
func measureAll(ctx context.Context, o options, stdout io.Writer) error {
	root, err := measure.Root(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "freeslot-e2e-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // temporary
	scheduler, err := measure.BuildScheduler(ctx, root, folder)
	if err != nil {
		return err
	}
	r := describe(ctx, o, root)
	for _, aof := range o.aof {
		part, err := measureSystem(ctx, o, scheduler, aof, stdout)
		if err != nil {
			return fmt.Errorf("append-only file %s: %w", aof, err)
		}
		r.Systems = append(r.Systems, part)
	}
	data, err := measure.Encode(r)
	if err != nil {
		return err
	}
	if err := measure.WriteFile(o.out, data); err != nil {
		return err
	}
	if err := report.Write(filepath.Dir(o.out), o.markdown); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "wrote %s and %s\n", o.out, o.markdown)
	if n := r.Failures(); n > 0 {
		return fmt.Errorf("%d jobs failed", n)
	}
	return nil
}

func measureSystem(ctx context.Context, o options, scheduler, aof string, stdout io.Writer) (part result.System, err error) {
	s, err := startSystem(ctx, scheduler, aof, o.shape)
	if err != nil {
		return part, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	redis, err := redisclient.Commands(redisclient.Config{URL: s.redis.URL(), Name: "bench"})
	if err != nil {
		return part, err
	}
	defer redis.Close()
	d := &driver{clients: s.clients, stats: redis, yard: newYardstick(redis), job: benchJob(o.payload)}
	part.AOF = aof
	if part.Redis, err = measure.RedisVersion(ctx, redis); err != nil {
		return part, err
	}
	if part.Idle, err = d.yard.idle(ctx); err != nil {
		return part, err
	}
	fmt.Fprintf(stdout, "%s, append-only file %s: bare EVALSHA %s\n", part.Redis, aof, part.Idle.Words())
	for _, sc := range o.scenarios {
		m, err := d.measure(ctx, sc, o.warmUp, o.duration)
		if err != nil {
			return part, fmt.Errorf("scenario %s: %w", sc, err)
		}
		part.Scenarios = append(part.Scenarios, m)
		fmt.Fprintf(stdout, "%-14s %8s jobs/s  assign %s  result %s  EVALSHA %s  redis %.1f us/job  refused %s  failed %s\n", sc,
			measure.Thousands(m.JobsPerSecond), m.Assign.Words(), m.Result.Words(), m.Loaded.Words(), m.Redis.CPUPerJob, result.Counts(m.Refused), result.Counts(m.Failed))
	}
	return part, nil
}

func describe(ctx context.Context, o options, root string) *result.Results {
	return &result.Results{
		Machine:   measure.Describe(ctx, "go run -C bench ./e2e "+strings.Join(o.args, " "), root),
		Replicas:  o.shape.replicas,
		Nodes:     o.shape.nodes,
		Slots:     o.shape.slots,
		Sessions:  o.shape.sessions,
		Payload:   o.payload,
		WarmUpMS:  o.warmUp.Milliseconds(),
		MeasureMS: o.duration.Milliseconds(),
	}
}
