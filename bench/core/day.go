package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// dayBefore is the last commit before idle processes, frames and large fleets were made cheaper.
const dayBefore = "fbff9ddb"

// daily has the flags of the part day.
type daily struct {
	before string
	rounds int
}

func (f *daily) flags(set *flag.FlagSet) {
	set.StringVar(&f.before, "before", "",
		"the commit that the part day compares with (default "+dayBefore+"; of a short run this tree itself)")
	set.IntVar(&f.rounds, "rounds", 0, "rounds of the parts day and starts (default 10, short 1)")
}

func (f *daily) check() error {
	if f.rounds < 0 || f.rounds > 100 {
		return fmt.Errorf("-rounds is %d, expected 1 to 100", f.rounds)
	}
	return nil
}

// day is the part under way: what users pay all day, with another commit and with this tree.
type day struct {
	*tool.Bench
	rounds int
	sides  []*side // before, after
}

// side is one of the two trees, with what was measured of it.
type side struct {
	name     string
	programs *system.Programs
	rest     map[string]*rest // by the name of the fleet
	direct   loads
	gateway  loads
}

func (f *daily) run(ctx context.Context, b *tool.Bench) {
	tool.Must(measure.RaiseFiles(fleetFiles))
	d := &day{Bench: b, rounds: cmp.Or(f.rounds, tool.Sized(b, 10, 1))}
	d.build(ctx, cmp.Or(f.before, tool.Sized(b, dayBefore, "")))
	d.atRest(ctx)
	d.underLoad(ctx)
}

// build builds both sides. Without a commit they are the same programs.
func (d *day) build(ctx context.Context, before string) {
	programs := tool.Must(system.Build(ctx, d.Root, d.Folder))
	after := &side{name: "after", programs: programs, rest: make(map[string]*rest)}
	old := &side{name: "before", programs: programs, rest: make(map[string]*rest)}
	version := "this tree itself"
	if before != "" {
		var source string
		var err error
		source, version, err = system.Checkout(ctx, d.Root, before)
		tool.Check(err)
		folder := filepath.Join(d.Folder, version)
		tool.Check(os.MkdirAll(folder, 0o750))
		old.programs = tool.Must(system.Build(ctx, source, folder))
		version = "commit " + version
	}
	d.sides = []*side{old, after}
	d.Say("Before is %s, after is this tree: replicas, workers and load are each side's own programs. Figures are medians "+
		"over the rounds. Ratios are medians of each round's own ratio.", version)
}

// inTurns has both sides measured in each round; who goes first changes.
func (d *day) inTurns(rounds int, measured func(s *side, round int)) {
	tool.InTurns(d.Bench, rounds, d.sides, measured)
}

// ratios divides round by round.
func ratios(of, by []float64) []float64 {
	out := make([]float64, len(of))
	for i := range of {
		out[i] = of[i] / by[i]
	}
	return out
}

// spread is the least and the most of the rounds.
func spread(values []float64) result.Figure {
	return result.Figure{measure.FourFigures(slices.Min(values)), measure.FourFigures(slices.Max(values))}
}

// promise is a target of the median of the rounds.
func (d *day) promise(what string, unit result.Unit, bound result.Bound, limit float64, before, after []float64) {
	d.Target(what, unit, bound, limit, measure.Median(after))
	d.Note("before %.4g; rounds %.4g to %.4g", measure.Median(before), slices.Min(after), slices.Max(after))
}

// restWindow is how long processes at rest are watched, loadWindow how long a load counts.
func (d *day) restWindow() time.Duration {
	return tool.Sized(d.Bench, 10*time.Second, 300*time.Millisecond)
}

func (d *day) loadWindow() time.Duration {
	return tool.Sized(d.Bench, 3*time.Second, 300*time.Millisecond)
}
