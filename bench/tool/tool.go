// Package tool is the command line that the load tools share: flags, parts, the results file and
// the report.
package tool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
)

// ErrLeftOut is returned by a part that cannot run with these flags or on this machine. The tool
// goes on with the next.
var ErrLeftOut = errors.New("left out")

// Tool is a load tool.
type Tool struct {
	// Name names the results file, Folder is the program's folder below bench.
	Name, Folder string
	About        string
	Parts        []Part
	// Flags adds the tool's own flags; nil adds none. Check refuses values that cannot be; nil
	// refuses none.
	Flags func(*flag.FlagSet)
	Check func() error
	// Trial reports whether the flags make a run that is no figure to keep; nil: only -short does.
	Trial func() bool
	// Modes are what the program does as a child of itself.
	Modes map[string]Mode
	// Strict makes targets a budget: the tool fails at its end if a run that is no short one missed
	// any.
	Strict bool
}

// Part is something that can be measured alone.
type Part struct {
	Name, About string
	// Run ends early by Check.
	Run func(ctx context.Context, b *Bench)
}

// Bench is what a part gets and what it fills in.
type Bench struct {
	// Short asks for a run that shows only that the part works.
	Short bool
	// Root is the product's folder, Folder a temporary one that all parts of the run share, Results
	// where results go.
	Root, Folder, Results string
	Result                result.Part
	// Failed counts jobs that did not succeed.
	Failed int64
	out    io.Writer
}

// Say adds a line to the method.
func (b *Bench) Say(format string, args ...any) {
	b.Result.Method = append(b.Result.Method, fmt.Sprintf(format, args...))
}

// Target adds a promise and what was measured of it.
func (b *Bench) Target(what string, unit result.Unit, bound result.Bound, limit, measured float64) {
	measured = measure.FourFigures(measured)
	t := result.Target{What: what, Unit: unit, Bound: bound, Limit: limit, Measured: &measured}
	b.Result.Targets = append(b.Result.Targets, t)
}

// Note explains the last target.
func (b *Bench) Note(format string, args ...any) {
	b.Result.Targets[len(b.Result.Targets)-1].Note = fmt.Sprintf(format, args...)
}

// Progress prints how far the part is.
func (b *Bench) Progress(format string, args ...any) { fmt.Fprintf(b.out, "  "+format+"\n", args...) }

// Sized is long, or short in a short run.
func Sized[T any](b *Bench, long, short T) T {
	if b.Short {
		return short
	}
	return long
}

type options struct {
	parts         []Part
	list, short   bool
	out, markdown string
	args          []string
}

// Main runs the tool for its process and returns the exit status.
func (t *Tool) Main() int {
	RunMode(t.Modes)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return t.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// Run parses args, measures, and writes results and report. It returns the exit status.
func (t *Tool) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := t.parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", t.Name, err)
		return 2
	case o.list:
		for _, p := range t.Parts {
			fmt.Fprintf(stdout, "%-12s %s\n", p.Name, p.About)
		}
		return 0
	}
	if err := t.measure(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", t.Name, err)
		return 1
	}
	return 0
}

func (t *Tool) names() []string {
	names := make([]string, len(t.Parts))
	for i, p := range t.Parts {
		names[i] = p.Name
	}
	return names
}

func (t *Tool) parse(args []string, stderr io.Writer) (options, error) {
	o := options{args: args}
	var wanted string
	f := flag.NewFlagSet(t.Name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintf(stderr, "%s\n\nUsage: %s [flags]\n\n", t.About, t.command())
		f.PrintDefaults()
	}
	f.StringVar(&wanted, "parts", "", "parts, separated by commas; empty is all: "+strings.Join(t.names(), " "))
	f.BoolVar(&o.list, "list", false, "list the parts")
	f.BoolVar(&o.short, "short", false, "a short run of each, which shows that it works and not how fast it is")
	f.StringVar(&o.out, "out", "", "results file, in which the parts that run are replaced (default results/"+t.Name+
		".json; of a short run in ../.dev/bench)")
	f.StringVar(&o.markdown, "markdown", "", "report file, written from all results files beside -out "+
		"(default RESULTS.md; of a short run in ../.dev/bench)")
	if t.Flags != nil {
		t.Flags(f)
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag; see -help", f.Arg(0))
	}
	if t.Check != nil {
		if err := t.Check(); err != nil {
			return o, err
		}
	}
	o.place(t.Name, o.short || t.Trial != nil && t.Trial())
	var err error
	o.parts, err = t.pick(wanted)
	return o, err
}

// place fills in where results go. A trial must not replace recorded figures unless a file is
// named.
func (o *options) place(name string, trial bool) {
	folder := "."
	if trial {
		folder = "../.dev/bench"
	}
	if o.out == "" {
		o.out = filepath.Join(folder, "results", name+".json")
	}
	if o.markdown == "" {
		o.markdown = filepath.Join(folder, "RESULTS.md")
	}
}

// pick finds parts by name; none means all.
func (t *Tool) pick(wanted string) ([]Part, error) {
	if wanted == "" {
		return t.Parts, nil
	}
	var out []Part
	for name := range strings.SplitSeq(wanted, ",") {
		i := slices.Index(t.names(), name)
		if i < 0 {
			return nil, fmt.Errorf("-parts has %q, expected some of %s", name, strings.Join(t.names(), ","))
		}
		out = append(out, t.Parts[i])
	}
	return out, nil
}

func (t *Tool) command() string { return "go run -C bench ./" + t.Folder }

// measure writes the file after each part, so that an interrupted run keeps what it has.
func (t *Tool) measure(ctx context.Context, o options, stdout io.Writer) error {
	root, err := measure.Root(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "freeslot-"+t.Name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // temporary
	all, err := result.Load(o.out)
	if err != nil {
		return err
	}
	machine := measure.Describe(ctx, t.command()+" "+strings.Join(plainPaths(o.args), " "), root)
	var failed int64
	var missed []string
	for _, p := range o.parts {
		fmt.Fprintf(stdout, "%s: %s\n", p.Name, p.About)
		begin := time.Now()
		machine.Date = begin.UTC().Format(time.RFC3339)
		b := &Bench{
			Short: o.short, Root: root, Folder: folder, Results: filepath.Dir(o.out), out: stdout,
			Result: result.Part{Name: p.Name, Machine: machine, Short: o.short, Method: []string{}},
		}
		err := Try(func() { p.Run(ctx, b) })
		if errors.Is(err, ErrLeftOut) {
			b.Progress("%v", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("part %s: %w", p.Name, err)
		}
		b.Result.Seconds = measure.Rounded(time.Since(begin).Seconds())
		failed += b.Failed
		if t.Strict && !o.short {
			missed = append(missed, b.Result.Missed()...)
		}
		all.Put(b.Result, t.names())
		fmt.Fprintln(stdout, b.Result.Words())
		if err := errors.Join(all.Save(o.out), result.Write(filepath.Dir(o.out), o.markdown)); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "wrote %s and %s\n", o.out, o.markdown)
	if failed > 0 {
		return fmt.Errorf("%d jobs failed", failed)
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d targets were missed: %s", len(missed), strings.Join(missed, "; "))
	}
	return nil
}

// plainPaths leaves the folders of files out of the command line: they mean nothing to a reader.
func plainPaths(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		name, path, found := strings.Cut(a, "=")
		switch {
		case found && strings.ContainsRune(path, filepath.Separator):
			out[i] = name + "=" + filepath.Base(path)
		case !found && strings.ContainsRune(a, filepath.Separator):
			out[i] = filepath.Base(a)
		}
	}
	return out
}
