package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/report"
)

func main() {
	if len(os.Args) > 1 {
		if child, ok := children[os.Args[1]]; ok {
			os.Exit(runChild(child, os.Args[2:]))
		}
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
		fmt.Fprintln(stderr, "core:", err)
		return 2
	case o.list:
		for _, s := range scenarios {
			fmt.Fprintf(stdout, "%-10s %s\n", s.name, s.about)
		}
		return 0
	}
	if err := measureAll(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "core:", err)
		return 1
	}
	return 0
}

// measureAll writes the file after each scenario, so that an interrupted run keeps what it has.
func measureAll(ctx context.Context, o options, stdout io.Writer) error {
	root, err := measure.Root(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "freeslot-core-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // temporary
	r, err := loadResults(o.out)
	if err != nil {
		return err
	}
	machine := measure.Describe(ctx, "go run -C bench ./core "+strings.Join(o.args, " "), root)
	for _, s := range o.scenarios {
		b := &bench{options: o, root: root, folder: folder, out: stdout}
		fmt.Fprintf(stdout, "%s: %s\n", s.name, s.about)
		begin := time.Now()
		b.result = result.Scenario{Name: s.name, Machine: machine, Short: o.short, Method: []string{}}
		if err := s.run(ctx, b); err != nil {
			return fmt.Errorf("scenario %s: %w", s.name, err)
		}
		b.result.Seconds = measure.Rounded(time.Since(begin).Seconds())
		r.Put(b.result)
		fmt.Fprintln(stdout, b.result.Words())
		if err := writeResults(o, r); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "wrote %s and %s\n", o.out, o.markdown)
	return nil
}

func loadResults(path string) (*result.Results, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &result.Results{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(result.Results)
	return r, measure.Decode(path, data, r)
}

func writeResults(o options, r *result.Results) error {
	r.Sort(names())
	data, err := measure.Encode(r)
	if err != nil {
		return err
	}
	if err := measure.WriteFile(o.out, data); err != nil {
		return err
	}
	return report.Write(filepath.Dir(o.out), o.markdown)
}
