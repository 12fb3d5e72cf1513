package beat_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/beat"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/presence"
)

// wakes are the instants at which the loops of a replica did something, by loop.
type wakes struct {
	mu sync.Mutex
	at map[string][]time.Time // guarded by mu
}

func (w *wakes) note(loop string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[loop] = append(w.at[loop], time.Now())
}

// quietRedis stands for the Redis of a replica without nodes.
type quietRedis struct {
	cache.Source
	*wakes
}

func (r quietRedis) Changes(context.Context, cell.Revision, int) (cell.Changes, error) {
	r.note("comparison")
	return cell.Changes{Generation: "g", NowMS: time.Now().UnixMilli()}, nil
}

func (r quietRedis) History(context.Context) (string, error) { return "h", nil }

func (r quietRedis) Heard(context.Context, int64, int, cell.Quiet) (cell.Heard, error) {
	r.note("heartbeats")
	return cell.Heard{NowMS: time.Now().UnixMilli()}, nil
}

func (r quietRedis) HeartbeatLimit() time.Duration { return 10 * time.Second }

func (r quietRedis) Present(_ context.Context, own presence.Replica, _ time.Duration) ([]presence.Replica, error) {
	r.note("presence")
	return []presence.Replica{own}, nil
}

func (r quietRedis) Leave(context.Context, string, time.Duration) error { return nil }

// TestIdleReplicaWakesAtBeats: the loops of a replica keep the periods of docs/design/timers.md, and
// all but the findings wake it at the instants of its beats.
func TestIdleReplicaWakesAtBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 10 * time.Minute
		w := &wakes{at: make(map[string][]time.Time)}
		redis, log := quietRedis{wakes: w}, zap.NewNop()
		nodes := cache.New(cache.Config{}, []cache.Feed{{Source: redis}}, log, nil)
		present := presence.New(presence.Config{Replica: "r"}, redis, log)
		board := finding.New([]finding.Source{{
			Name: "memory", Memory: true,
			Look: func(context.Context) ([]finding.Finding, error) { w.note("findings"); return nil, nil },
		}}, log)
		pools := follow.NewPoller(time.Second, time.Second, func(context.Context) error { w.note("pools"); return nil })
		present.Start()
		for _, start := range []func(context.Context) error{nodes.Start, board.Start} {
			if err := start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var polling sync.WaitGroup
		polling.Go(func() { pools.Run(ctx) })
		time.Sleep(lasts)
		cancel()
		polling.Wait()
		for _, stop := range []func(context.Context) error{board.Stop, present.Stop, nodes.Stop} {
			if err := stop(t.Context()); err != nil {
				t.Error(err)
			}
		}

		all, off := 0, 0
		for loop, period := range map[string]time.Duration{
			"comparison": time.Second, "heartbeats": time.Second, "pools": time.Second, "presence": 1900 * time.Millisecond,
			"findings": 5 * time.Second,
		} {
			if got, want := len(w.at[loop]), int(lasts/period); got < want*9/10 || got > want*11/10 {
				t.Errorf("%s: %d wakes in %s, expected about one each %s", loop, got, lasts, period)
			}
			for _, at := range w.at[loop] {
				all++
				if loop != "findings" && !beat.Is(at) {
					off++
				}
			}
			delete(w.at, loop)
		}
		// The start is at no beat. Heartbeats are read by themselves if a comparison is late.
		if off > all/20 {
			t.Errorf("%d of %d wakes were at no beat", off, all)
		}
		if len(w.at) > 0 {
			t.Errorf("loops %q are not on the page", slices.Collect(maps.Keys(w.at)))
		}
	})
}
