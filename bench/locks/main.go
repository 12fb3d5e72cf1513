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
	"flag"
	"os"
	"time"

	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func main() { os.Exit(newTool().Main()) }

var modes = map[string]tool.Mode{childMode: runChild}

func newTool() *tool.Tool {
	l := tool.Length{Rounds: 10, Window: time.Second}
	part := func(name, about string, run func(context.Context, *tool.Bench, *system.Redis, tool.Length)) tool.Part {
		return tool.Part{Name: name, About: about, Run: func(ctx context.Context, b *tool.Bench) {
			redis := b.StartRedis(ctx)
			defer tool.End(redis.Stop)
			run(ctx, b, redis, tool.Sized(b, l, tool.Length{Rounds: 1, Window: 100 * time.Millisecond}))
		}}
	}
	return &tool.Tool{
		Name: "locks", Folder: "locks", About: "Measures the lock beside its peers.", Modes: modes,
		Parts: []tool.Part{
			part("keys", "64 workers with a key each", runKeys),
			part("alone", "lock and unlock one at a time, beside a bare EVALSHA", runAlone),
			part("one", "4 processes of 4 workers and one key, unfair and fair", runOne),
			part("next", "from unlock to the next holder in another process", runNext),
			part("death", "killed and stopped waiters, and a killed holder", runDeath),
			part("idle", "what held locks and waiters cost while nothing happens", runIdle),
			part("partition", "two holders with live contexts in a silent partition", runPartition),
		},
		Flags: func(f *flag.FlagSet) { l.Flags(f, "library") }, Check: l.Check,
	}
}
