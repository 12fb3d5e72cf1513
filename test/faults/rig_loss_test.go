package faults

import (
	"context"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// Actions on what Redis has. It keeps its data at none of them.
const (
	Flush Action = "flush"
	// Empty has Redis start again without its data.
	Empty Action = "empty"
	// FailOver has a replica take Redis' place that misses the last writes.
	FailOver Action = "fail over"
)

// loser is a breaker that has Redis lose data.
type loser struct {
	*breaker
	replica *redistest.Server
}

func (l *loser) flush(ctx context.Context, _ Breakage) {
	l.must(ask(ctx, l.redis.Process(), "FLUSHALL").Error())
}

func (l *loser) empty(ctx context.Context, p Breakage) {
	l.redis.Kill()
	pause(ctx, p.For)
	l.redis.Restart()
	l.must(ask(ctx, l.redis.Process(), "REPLICAOF", "NO", "ONE").Error()) // one that took over starts as a replica again
}

// failOver cuts the replica off, kills the master when it has done more, and leads all ways to
// the replica. It returns when the old master follows it.
func (l *loser) failOver(ctx context.Context, p Breakage) {
	l.must(ask(ctx, l.replica.Process(), "REPLICAOF", "NO", "ONE").Error())
	pause(ctx, p.For)
	l.redis.Kill()
	l.redis, l.replica = l.replica, l.redis
	for _, way := range l.ways {
		way.Stop()
		way.Upstream = l.redis.Process().Addr()
		l.open(way)
	}
	l.replica.Restart()
	l.must(ask(ctx, l.replica.Process(), "REPLICAOF", "127.0.0.1", strconv.Itoa(l.redis.Process().Port())).Error())
	l.must(redistest.Await(func(ctx context.Context) bool {
		info, err := ask(ctx, l.replica.Process(), "INFO", "replication").ToString()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}))
}

func (l *loser) must(err error) {
	if err != nil {
		l.t.Errorf("break Redis: %v", err)
	}
}
