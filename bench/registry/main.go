// Command registry measures the registry of services of this repository beside etcd and beside two
// patterns that libraries in Go have on Redis.
//
//	go run -C bench ./registry                     everything, into bench/results/registry.json and bench/RESULTS.md
//	go run -C bench ./registry -parts write,push   only these; the file keeps its figures of the others
//	go run -C bench ./registry -short              everything in about a minute; shows that it works, not how fast
//
// Registries take turns within each round, and figures are medians of the rounds.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func main() { os.Exit(newTool().Main()) }

var modes = map[string]tool.Mode{entrantMode: runEntrant, provideMode: provide}

// length is how long everything is measured.
type length struct {
	tool.Length
	etcd bool
}

func newTool() *tool.Tool {
	l := length{Length: tool.Length{Rounds: 5, Window: 2 * time.Second}}
	part := func(name, about string, run func(context.Context, *tool.Bench, *system.Redis, length)) tool.Part {
		return tool.Part{Name: name, About: about, Run: func(ctx context.Context, b *tool.Bench) {
			// Each of 5,000 consumers has two connections, and so has Redis.
			tool.Must(measure.RaiseFiles(3 * files))
			redis := b.StartRedis(ctx)
			defer tool.End(redis.Stop)
			short := length{tool.Length{Rounds: 1, Window: 200 * time.Millisecond}, l.etcd}
			run(ctx, b, redis, tool.Sized(b, l, short))
		}}
	}
	return &tool.Tool{
		Name: "registry", Folder: "registry", About: "Measures the registry of services beside its peers.", Modes: modes,
		Parts: []tool.Part{
			part("write", "registrations and heartbeats for each second of the server's processor", runWrite),
			part("push", "from a change to 100 subscribers in 4 processes", runPush),
			part("death", "from kill -9 to out of every healthy list", runDeath),
			part("pick", "Pick from a list that changes 1,000 times a second", runPick),
			part("load", "the first load of 10,000 instances", runLoad),
			part("expire", "10,000 instances that expire at once", runExpire),
			part("idle", "5,000 consumers at rest, and the memory of one with 100,000 instances", runIdle),
		},
		Flags: func(f *flag.FlagSet) {
			l.Flags(f, "registry")
			f.BoolVar(&l.etcd, "etcd", true, "build etcd and measure it, too")
		},
		Check: l.Check,
	}
}
