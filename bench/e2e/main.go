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

	"github.com/freeslot/freeslot/internal/redisclient"
)

const modulePath = "github.com/freeslot/freeslot"

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
		err = check(o.out, o.markdown)
	case o.report:
		err = writeReport(o.out, o.markdown)
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
	root, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", modulePath)
	if err != nil {
		return fmt.Errorf("run this inside the repository: %w", err)
	}
	folder, err := os.MkdirTemp("", "freeslot-e2e-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // temporary
	scheduler, err := buildScheduler(ctx, root, folder)
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
	data, err := r.encode()
	if err != nil {
		return err
	}
	if err := writeFile(o.out, data); err != nil {
		return err
	}
	if err := writeReport(o.out, o.markdown); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "wrote %s and %s\n", o.out, o.markdown)
	if n := r.failures(); n > 0 {
		return fmt.Errorf("%d jobs failed", n)
	}
	return nil
}

func measureSystem(ctx context.Context, o options, scheduler, aof string, stdout io.Writer) (part systemPart, err error) {
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
	if part.Redis, err = redisVersion(ctx, redis); err != nil {
		return part, err
	}
	if part.Idle, err = d.yard.idle(ctx); err != nil {
		return part, err
	}
	fmt.Fprintf(stdout, "%s, append-only file %s: bare EVALSHA %s\n", part.Redis, aof, part.Idle.words())
	for _, sc := range o.scenarios {
		m, err := d.measure(ctx, sc, o.warmUp, o.duration)
		if err != nil {
			return part, fmt.Errorf("scenario %s: %w", sc, err)
		}
		part.Scenarios = append(part.Scenarios, m)
		fmt.Fprintf(stdout, "%-14s %8s jobs/s  assign %s  result %s  EVALSHA %s  redis %.1f us/job  refused %s  failed %s\n", sc,
			thousands(m.JobsPerSecond), m.Assign.words(), m.Result.words(), m.Loaded.words(), m.Redis.CPUPerJob, counts(m.Refused), counts(m.Failed))
	}
	return part, nil
}
