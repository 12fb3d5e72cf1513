// Command lists measures name lists beside what else could hold ten million ids: a hash, a set and
// a Bloom filter in Redis, and a map and a roaring bitmap in the process. It measures chains beside
// flags of OpenFeature and of GrowthBook.
//
//	go run -C bench ./lists                  everything, into results/lists.json and RESULTS.md
//	go run -C bench ./lists -parts ask,check only these, after an import; other figures stay
//	go run -C bench ./lists -ids 1000000     a smaller list, into .dev/bench
//	go run -C bench ./lists -huge            also an import of ten times the ids
//	go run -C bench ./lists -short           all in a minute; shows that it works, not how fast
//
// All parts share one list, its servers and a replica. What is compared takes turns within each
// round, and figures are medians of the rounds.
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// promised is how many ids the targets are for.
const promised = 10_000_000

func main() {
	t, stop := newTool()
	code := t.Main()
	if err := stop(); err != nil {
		_, _ = os.Stderr.WriteString("lists: " + err.Error() + "\n")
		code = max(code, 1)
	}
	os.Exit(code)
}

// size is how much is measured.
type size struct {
	ids, rounds, switches, edits int
	huge                         bool
}

// newTool also returns what ends the processes that the parts share.
func newTool() (t *tool.Tool, stop func() error) {
	var s size
	var shared *bed
	part := func(name, about string, run func(context.Context, *tool.Bench, *bed)) tool.Part {
		return tool.Part{Name: name, About: about, Run: func(ctx context.Context, b *tool.Bench) {
			if shared == nil {
				short := size{ids: 20_000, rounds: 2, switches: 2, edits: 10, huge: true}
				shared = openBed(ctx, b, tool.Sized(b, s, short))
			}
			b.NoteServer(ctx, shared.data, system.AOFOff)
			run(ctx, b, shared)
		}}
	}
	t = &tool.Tool{
		Name: "lists", Folder: "lists", About: "Measures name lists beside what else could hold their ids.", Modes: modes,
		Parts: []tool.Part{
			part("import", "from a file to a version, and what that needs", runImport),
			part("reshard", "the same ids in other segments under 20,000 checks/s", runReshard),
			part("memory", "of a client with the list, and while it switches", runMemory),
			part("ask", "exact checks and wrong answers beside a hash, a set and a Bloom filter in Redis", runAsk),
			part("cold", "from nothing to an answer and to the filter", runCold),
			part("check", "checks in memory beside a map and a roaring bitmap", runCheck),
			part("follow", "from a switch and an edit to the last of 100 clients", runFollow),
			part("chain", "decisions of chains beside OpenFeature and GrowthBook, and how fast clients get new versions", runChain),
			part("source", "from rows of PostgreSQL to a version, beside a file of the same ids", runSource),
			part("count", "what counting adds to a lookup", runCount),
			part("statistics", "what statistics cost the replica and Redis", runStatistics),
			part("huge", "an import of ten times the ids (only with -huge)", runHuge),
		},
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&s.ids, "ids", promised, "how many ids the list has")
			f.IntVar(&s.rounds, "rounds", 5, "how many rounds to measure; a figure is the median of them")
			f.IntVar(&s.switches, "switches", 40, "how many switches to measure; each needs a second for clients to load")
			f.IntVar(&s.edits, "edits", 300, "how many edits to measure")
			f.BoolVar(&s.huge, "huge", false, "also import ten times the ids")
		},
		Check: func() error {
			if s.ids < 1000 || s.rounds < 1 || s.switches < 1 || s.edits < 1 {
				return errors.New("-ids must be 1000 or more; -rounds, -switches and -edits 1 or more")
			}
			return nil
		},
		Trial: func() bool { return s.ids < promised },
	}
	return t, func() error {
		if shared == nil {
			return nil
		}
		return shared.close()
	}
}
