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
	"syscall"

	"github.com/freeslot/freeslot/client"
)

const defaultInput = "examples/speech/phrases.txt"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// options are the command line.
type options struct {
	input         string // a file, or "-"
	folder, out   string
	allowFailures bool
}

// run returns the exit status: 0 if every line was spoken, 2 if the command line is wrong,
// otherwise 1.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "speech:", err)
		return 2
	}
	failed, err := speakInput(ctx, o, stdin, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "speech:", err)
		return 1
	}
	if failed > 0 && !o.allowFailures {
		return 1
	}
	return 0
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	o := options{input: defaultInput}
	f := flag.NewFlagSet("speech", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "Speaks the lines of a text file (\"de: Guten Tag\"), one job a line.\n\n"+
			"Usage: go run ./examples/speech [flags] [file]\n\nThe file is - for standard input; default "+defaultInput+".\n\n")
		f.PrintDefaults()
	}
	f.StringVar(&o.folder, "dir", filepath.Join(".dev", "speech"), "folder for everything that the program needs")
	f.StringVar(&o.out, "out", "", "folder for the WAV files (default wav inside -dir)")
	f.BoolVar(&o.allowFailures, "allow-failures", false, "exit with status 0 even if lines could not be spoken")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch f.NArg() {
	case 0:
	case 1:
		o.input = f.Arg(0)
	default:
		return o, fmt.Errorf("%d files are given, expected one; flags come before it", f.NArg())
	}
	if o.out == "" {
		o.out = filepath.Join(o.folder, "wav")
	}
	return o, nil
}

// speakInput speaks the input and returns how many lines failed.
func speakInput(ctx context.Context, o options, stdin io.Reader, stdout io.Writer) (failed int, err error) {
	program, err := findSynthesizer()
	if err != nil {
		return 0, err
	}
	phrases, err := openInput(o.input, stdin)
	if err != nil {
		return 0, err
	}
	if len(phrases) == 0 {
		return 0, fmt.Errorf("%s has no line to speak", o.input)
	}
	if err := os.MkdirAll(o.out, 0o750); err != nil {
		return 0, err
	}
	s, err := startSystem(ctx, o.folder, program)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	c, err := client.Dial(ctx, s.url, client.Options{Name: "speech"})
	if err != nil {
		return 0, err
	}
	defer c.Close() //nolint:errcheck // every job has ended
	outcomes := speakAll(ctx, c, phrases, o.out)
	if err := writeTable(stdout, outcomes); err != nil {
		return 0, err
	}
	for i := range outcomes {
		if outcomes[i].err != nil {
			failed++
		}
	}
	fmt.Fprintf(stdout, "\n%d of %d lines spoken, WAV files in %s\n", len(outcomes)-failed, len(outcomes), o.out)
	return failed, ctx.Err()
}

func openInput(name string, stdin io.Reader) ([]phrase, error) {
	if name == "-" {
		return readPhrases(stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	phrases, err := readPhrases(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return phrases, nil
}
