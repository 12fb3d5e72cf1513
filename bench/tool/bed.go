package tool

import (
	"context"
	"errors"
	"flag"
	"path/filepath"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/plot"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
)

// Program builds one of the product's programs, unless a part before has done so, and returns its
// path.
func (b *Bench) Program(ctx context.Context, name string) string {
	return Must(measure.BuildProgram(ctx, b.Root, b.Folder, name))
}

// StartRedis starts a server without an append-only file and notes its version. The caller stops
// it.
func (b *Bench) StartRedis(ctx context.Context, args ...string) *system.Redis {
	redis := Must(system.StartRedis(ctx, system.AOFOff, args...))
	b.NoteServer(ctx, redis, system.AOFOff)
	return redis
}

// StartSystem starts this scheduler's processes and notes Redis' version. The caller stops them.
func (b *Bench) StartSystem(ctx context.Context, shape system.Shape) *system.System {
	programs := Must(system.Build(ctx, b.Root, b.Folder))
	shape.Program = system.Freeslot
	s := Must(system.Start(ctx, programs, shape))
	b.NoteServer(ctx, s.Redis, shape.AOF)
	return s
}

// NoteServer names the server in the result.
func (b *Bench) NoteServer(ctx context.Context, redis *system.Redis, aof string) {
	b.Result.Servers = Must(measure.RedisVersion(ctx, redis.Client)) + ", append-only file " + aof
}

// Draw writes a plot beside the results.
func (b *Bench) Draw(file string, f *plot.Figure) {
	b.Result.Plots = append(b.Result.Plots, result.Plot{Title: f.Title, File: file})
	Check(measure.WriteFile(filepath.Join(b.Results, file), Must(plot.SVG(f))))
}

// Sleep waits in the part's own goroutine.
func Sleep(ctx context.Context, d time.Duration) { Check(measure.SleepUntil(ctx, time.Now().Add(d))) }

// InTurns has all measured in each round, and another one first each time.
func InTurns[E any](b *Bench, rounds int, all []E, measured func(e E, round int)) {
	for round := range rounds {
		for i := range all {
			measured(all[(i+round)%len(all)], round)
		}
		b.Progress("round %d of %d", round+1, rounds)
	}
}

// Length is how long a tool measures that compares in rounds.
type Length struct {
	Rounds int
	Window time.Duration
}

// Flags adds -rounds and -window, with l as their defaults; what names what takes turns.
func (l *Length) Flags(f *flag.FlagSet, what string) {
	f.IntVar(&l.Rounds, "rounds", l.Rounds, "how many rounds to measure; a figure is the median of them")
	f.DurationVar(&l.Window, "window", l.Window, "how long each "+what+" is measured in a round")
}

// Check refuses what cannot be.
func (l *Length) Check() error {
	if l.Rounds < 1 || l.Window < 10*time.Millisecond {
		return errors.New("-rounds must be 1 or more, and -window 10ms or more")
	}
	return nil
}
