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
	"errors"
	"flag"
	"os"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == childMode {
		os.Exit(childMain(os.Args[2:]))
	}
	os.Exit(newTool().Main())
}

// length is how long everything is measured.
type length struct {
	rounds int
	window time.Duration
	etcd   bool
}

func newTool() *tool.Tool {
	var l length
	part := func(name, about string, run func(context.Context, *tool.Bench, *system.Redis, length) error) tool.Part {
		return tool.Part{Name: name, About: about, Run: func(ctx context.Context, b *tool.Bench) (err error) {
			// Each of 5,000 consumers has two connections, and so has Redis.
			if _, err := measure.RaiseFiles(3 * files); err != nil {
				return err
			}
			redis, err := system.StartRedis(ctx, system.AOFOff)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, redis.Stop()) }()
			version, err := measure.RedisVersion(ctx, redis.Client)
			if err != nil {
				return err
			}
			b.Result.Servers = version + ", append-only file off"
			return run(ctx, b, redis, tool.Sized(b, l, length{rounds: 1, window: 200 * time.Millisecond, etcd: l.etcd}))
		}}
	}
	return &tool.Tool{
		Name: "registry", Folder: "registry", About: "Measures the registry of services beside its peers.",
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
			f.IntVar(&l.rounds, "rounds", 5, "how many rounds to measure; a figure is the median of them")
			f.DurationVar(&l.window, "window", 2*time.Second, "how long each registry is measured in a round")
			f.BoolVar(&l.etcd, "etcd", true, "build etcd and measure it, too")
		},
		Check: func() error {
			if l.rounds < 1 || l.window < 10*time.Millisecond {
				return errors.New("-rounds must be 1 or more, and -window 10ms or more")
			}
			return nil
		},
	}
}

// note explains the last target.
func note(b *tool.Bench, text string) { b.Result.Targets[len(b.Result.Targets)-1].Note = text }
