// Command run measures this scheduler beside what users would pick instead, and what a job costs as
// the system grows. It starts its own servers; everything shares this machine.
//
//	go run -C bench ./peers/run                      everything, 10 rounds
//	go run -C bench ./peers/run -short               the same in minutes, into .dev/bench
//	go run -C bench ./peers/run -parts peers,scale   some of the parts
//
// bench/README.md says how each peer is run and why.
package main

import (
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
	rounds int
	window time.Duration

	programs *system.Programs
	missing  map[string]string // why a peer's program could not be built
	redis    string            // versions
	others   []string
}

// bench is a part under way.
type bench struct {
	*tool.Bench
	*shared
}

func newTool() *tool.Tool {
	s := new(shared)
	return &tool.Tool{
		Name: "peers", Folder: "peers/run",
		About: "Measures freeslot beside its peers, and as it grows.",
		Flags: s.flags, Check: s.check, Trial: func() bool { return s.peers != "" },
		Parts: []tool.Part{
			{Name: "peers", About: "all peers, append-only file off: throughput, latency at shares of each one's saturation", Run: s.part((*bench).plain)},
			{Name: "always", About: "this scheduler and asynq, append-only file with fsync always", Run: s.part((*bench).always)},
			{Name: "away", About: "this scheduler and asynq, every round trip to Redis 1 ms longer", Run: s.part((*bench).away)},
			{Name: "scale", About: "what a job costs as nodes and replicas grow", Run: s.part((*bench).scale)},
		},
	}
}

func (s *shared) flags(f *flag.FlagSet) {
	f.StringVar(&s.peers, "peers", "", "only the entries whose names contain one of these words, separated by commas")
	f.IntVar(&s.rounds, "rounds", 0, "interleaved rounds (default 10, short 3)")
	f.DurationVar(&s.window, "window", 0, "what counts of each load (default 5s, short 1s)")
}

func (s *shared) check() error {
	switch {
	case s.rounds < 0 || s.rounds > 100:
		return fmt.Errorf("-rounds is %d, expected 1 to 100", s.rounds)
	case s.window != 0 && (s.window < 100*time.Millisecond || s.window > 10*time.Minute):
		return fmt.Errorf("-window is %s, expected 100ms to 10m0s", s.window)
	}
	return nil
}

// part makes a tool's part of a method. The first one builds the programs.
func (s *shared) part(run func(*bench, context.Context) error) func(context.Context, *tool.Bench) error {
	return func(ctx context.Context, b *tool.Bench) error {
		if s.rounds == 0 {
			s.rounds = tool.Sized(b, 10, 3)
		}
		if s.window == 0 {
			s.window = tool.Sized(b, 5*time.Second, time.Second)
		}
		part := &bench{b, s}
		if s.programs == nil {
			if err := part.build(ctx); err != nil {
				return err
			}
		}
		return run(part, ctx)
	}
}

// build builds everything that can be built. A peer that cannot is left out, and the report says
// why.
func (b *bench) build(ctx context.Context) error {
	programs, err := system.Build(ctx, b.Root, b.Folder)
	if err != nil {
		return err
	}
	missing := make(map[string]string)
	for _, e := range entries() {
		if !b.wanted(e.name) || programs.Commands[e.program] != nil || missing[e.program] != "" {
			continue
		}
		if err := programs.BuildPeer(ctx, e.program, b.Root, b.Folder); err != nil {
			missing[e.program] = err.Error()
			b.Progress("%s is left out: %s", e.program, err)
		}
	}
	redis, postgres, node, err := system.Versions(ctx)
	if err != nil {
		return err
	}
	b.programs, b.missing, b.redis = programs, missing, redis
	b.others = slices.DeleteFunc([]string{postgres, node}, func(v string) bool { return v == "" })
	return nil
}

// wanted reports whether -peers asks for the entry.
func (s *shared) wanted(name string) bool {
	if s.peers == "" {
		return true
	}
	return slices.ContainsFunc(strings.Split(s.peers, ","), func(word string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(word)) })
}

// warmUp is how long a load runs before what counts, in milliseconds.
func (s *shared) warmUp() int64 { return max(s.window.Milliseconds()/5, 200) }
