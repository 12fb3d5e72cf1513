// Command run measures this scheduler beside what users would pick instead, and what a job costs as
// the system grows. It starts its own servers; everything shares this machine.
//
//	go run -C bench ./peers/run                      everything, 10 rounds
//	go run -C bench ./peers/run -short               the same in minutes, into .dev/bench
//	go run -C bench ./peers/run -parts peers,scale   some of the parts
//	go run -C bench ./peers/run -parts fleet -fleets 100x16 -peers batch,asynq
//
// bench/README.md says how each peer is run and why.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func main() { os.Exit(newTool().Main()) }

// shared is what all parts of a run have in common: the flags, and the programs once they are
// built.
type shared struct {
	peers  string
	fleets string
	before string
	given  size // 0 where no flag says

	programs *system.Programs
	missing  map[string]error // why a peer's program could not be built; nil where it could
	redis    string           // versions
	others   []string
}

// size is how much a part measures.
type size struct {
	rounds int
	window time.Duration
}

// The sizes of parts. A fleet has more that is measured in each round.
var (
	longPart   = size{10, 5 * time.Second}
	shortPart  = size{3, time.Second}
	longFleet  = size{3, 1200 * time.Millisecond}
	shortFleet = size{1, 600 * time.Millisecond}
)

// bench is a part under way.
type bench struct {
	*tool.Bench
	*shared
	size
}

func newTool() *tool.Tool {
	s := new(shared)
	return &tool.Tool{
		Name: "peers", Folder: "peers/run",
		About: "Measures freeslot beside its peers, and as it grows.",
		Flags: s.flags, Check: s.check, Trial: func() bool { return s.peers != "" || s.fleets != allFleets },
		Parts: []tool.Part{
			{Name: "peers", About: "all peers, append-only file off: throughput, latency at shares of each one's saturation", Run: s.part((*bench).plain, longPart, shortPart)},
			{Name: "fleet", About: "fleets of 2 to 1,000 nodes, beside as many servers of asynq and workers of NATS JetStream", Run: s.part((*bench).fleet, longFleet, shortFleet)},
			{Name: "always", About: "this scheduler and asynq, append-only file with fsync always", Run: s.part((*bench).always, longPart, shortPart)},
			{Name: "away", About: "this scheduler and asynq, every round trip to Redis 1 ms longer", Run: s.part((*bench).away, longPart, shortPart)},
			{Name: "scale", About: "what a job costs as nodes and replicas grow", Run: s.part((*bench).scale, longPart, shortPart)},
		},
	}
}

func (s *shared) flags(f *flag.FlagSet) {
	f.StringVar(&s.peers, "peers", "", "only the entries whose names contain one of these words, separated by commas")
	f.IntVar(&s.given.rounds, "rounds", 0, "interleaved rounds (default 10, short 3; of fleet 3 and 1)")
	f.DurationVar(&s.given.window, "window", 0, "what counts of each load (default 5s, short 1s; of fleet 1.2s and 600ms)")
	f.StringVar(&s.fleets, "fleets", allFleets, "fleets of the part fleet, as nodes x slots of each")
	f.StringVar(&s.before, "before", "", "a commit; the part fleet also measures what a job costs Redis with it")
}

func (s *shared) check() error {
	switch {
	case s.given.rounds < 0 || s.given.rounds > 100:
		return fmt.Errorf("-rounds is %d, expected 1 to 100", s.given.rounds)
	case s.given.window != 0 && (s.given.window < 100*time.Millisecond || s.given.window > 10*time.Minute):
		return fmt.Errorf("-window is %s, expected 100ms to 10m0s", s.given.window)
	}
	_, err := parseFleets(s.fleets)
	return err
}

// part makes a tool's part of a method. The first one builds the programs of this scheduler.
func (s *shared) part(run func(*bench, context.Context), long, short size) func(context.Context, *tool.Bench) {
	return func(ctx context.Context, b *tool.Bench) {
		n := tool.Sized(b, long, short)
		part := &bench{b, s, size{cmp.Or(s.given.rounds, n.rounds), cmp.Or(s.given.window, n.window)}}
		if s.programs == nil {
			part.build(ctx)
		}
		run(part, ctx)
	}
}

func (b *bench) build(ctx context.Context) {
	redis, postgres, node, err := system.Versions(ctx)
	tool.Check(err)
	b.missing, b.redis = make(map[string]error), redis
	b.others = slices.DeleteFunc([]string{postgres, node}, func(v string) bool { return v == "" })
	b.programs = tool.Must(system.Build(ctx, b.Root, b.Folder))
}

// buildPeer builds a peer's program, unless an entry before has tried.
func (b *bench) buildPeer(ctx context.Context, name string) error {
	if b.programs.Commands[name] != nil {
		return nil
	}
	err, tried := b.missing[name]
	if !tried {
		err = b.programs.BuildPeer(ctx, name, b.Root, b.Folder)
		b.missing[name] = err
	}
	return err
}

// wanted reports whether -peers asks for the entry.
func (s *shared) wanted(name string) bool {
	if s.peers == "" {
		return true
	}
	return slices.ContainsFunc(strings.Split(s.peers, ","), func(word string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(word)) })
}

// warmUp is how long a load runs before what counts, in milliseconds.
func (s size) warmUp() int64 { return max(s.window.Milliseconds()/5, 200) }
