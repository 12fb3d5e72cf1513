// Command locks measures the lock of this repository beside rueidislock, redislock and redsync, on
// the same redis-server.
//
//	go run -C bench ./locks                    everything, into bench/results/locks.json and bench/RESULTS.md
//	go run -C bench ./locks -parts one,fair    only these; the file keeps its figures of the others
//	go run -C bench ./locks -short             everything in about a minute; shows that it works, not how fast
//
// Libraries take turns within each round, and figures are medians of the rounds. Before that each
// peer is swept over its own options; the rounds run with the setting that locked most often.
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
}

func newTool() *tool.Tool {
	var l length
	part := func(name, about string, run func(context.Context, *tool.Bench, *system.Redis, length) error) tool.Part {
		return tool.Part{Name: name, About: about, Run: func(ctx context.Context, b *tool.Bench) (err error) {
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
			return run(ctx, b, redis, tool.Sized(b, l, length{rounds: 1, window: 100 * time.Millisecond}))
		}}
	}
	return &tool.Tool{
		Name: "locks", Folder: "locks", About: "Measures the lock beside its peers.",
		Parts: []tool.Part{
			part("keys", "64 workers with a key each", runKeys),
			part("alone", "lock and unlock one at a time, beside a bare EVALSHA", runAlone),
			part("one", "4 processes of 4 workers and one key, unfair and fair", runOne),
			part("next", "from unlock to the next holder in another process", runNext),
			part("death", "killed and stopped waiters, and a killed holder", runDeath),
			part("idle", "what held locks and waiters cost while nothing happens", runIdle),
			part("partition", "two holders with live contexts in a silent partition", runPartition),
		},
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&l.rounds, "rounds", 10, "how many rounds to measure; a figure is the median of them")
			f.DurationVar(&l.window, "window", time.Second, "how long each library is measured in a round")
		},
		Check: func() error {
			if l.rounds < 1 || l.window < 10*time.Millisecond {
				return errors.New("-rounds must be 1 or more, and -window 10ms or more")
			}
			return nil
		},
	}
}
