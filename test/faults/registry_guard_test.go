package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// guardLimit bounds one step of TestRegistryGuard: the guard lasts for two limits, and begins and
// ends by a cleanup.
const guardLimit = 10 * time.Second

// TestRegistryGuard: first half of the instances fall silent, and then the others. They leave
// healthy lists at once, none is removed while the guard holds, and the last list says why it is
// empty.
func TestRegistryGuard(t *testing.T) {
	t.Parallel()
	b := registryRun{}.start(t)
	var down sync.WaitGroup
	back := make(chan struct{})
	restart := sync.OnceFunc(func() { close(back) })
	kill := func(names ...string) {
		var killed sync.WaitGroup
		for _, name := range names {
			killed.Add(1)
			down.Go(func() {
				b.broken(name, Kill, func() {
					b.programs[name].kill()
					killed.Done()
					<-back
					b.programs[name].start()
				})
			})
		}
		killed.Wait()
	}
	defer func() { // also where a step fails
		restart()
		down.Wait()
	}()
	b.awaitAll()
	b.awaitLimits()

	kill("p1", "p3")
	b.awaitList("half of them are late, and protected", func(l *SeenList) bool {
		return l.State == "protected" && len(l.Instances) == 5 && slices.Equal(l.healthy(), []string{"p2-0", "p2-1"})
	})
	b.awaitList("half of them are removed", func(l *SeenList) bool { return l.State == "live" && len(l.Instances) == 2 })
	kill("p2")
	b.awaitList("all of them are late, and the last resort", func(l *SeenList) bool { return l.Last && len(l.healthy()) == 2 })
	b.awaitList("all of them are protected", func(l *SeenList) bool { return l.State == "protected" && len(l.Instances) == 2 })
	b.awaitList("all of them have expired", func(l *SeenList) bool { return l.State == "empty" && l.Why == "expired" })
	restart()
	down.Wait()
	b.awaitUp(startLimit)

	h, unrest := b.awaitRest(registryRest)
	if judged := h.judge(t, unrest); judged["guarded"] == 0 {
		t.Error("no removal was guarded")
	}
}

// healthy are the ids of the healthy part.
func (s *SeenList) healthy() (ids []string) {
	for _, in := range s.Instances {
		if in.Healthy {
			ids = append(ids, in.ID)
		}
	}
	return ids
}

// awaitAll waits until each consumer has all instances of the service web.
func (b *registryBreaker) awaitAll() {
	b.t.Helper()
	b.awaitList("all are there", func(l *SeenList) bool { return l.State == "live" && len(l.healthy()) == 5*b.times })
}

// awaitList waits until each consumer has such a list of the service web.
func (b *registryBreaker) awaitList(what string, is func(*SeenList) bool) {
	b.t.Helper()
	begin, busy := Clock(), margin()
	for {
		var others []string
		for _, l := range b.history().lives() {
			if slices.Contains(l.follows, "web") {
				lists := l.seen("web")
				if last := lists[len(lists)-1].SeenList; last == nil || !is(last) {
					others = append(others, fmt.Sprintf("%s has %+v", l.life, last))
				}
			}
		}
		took := (Clock() - begin).Round(10 * time.Millisecond)
		if len(others) == 0 {
			b.t.Logf("%s: after %s", what, took)
			return
		}
		if took > guardLimit+busy() || !pause(b.t.Context(), lookInterval) {
			b.t.Fatalf("%s: not after %s: %v", what, took, others)
		}
	}
}

// awaitLimits waits until cleanup has its short limit.
func (b *registryBreaker) awaitLimits() {
	b.t.Helper()
	if err := redistest.Await(func(ctx context.Context) bool {
		limit, err := ask(ctx, b.redis.Process(), "HGET", registry.DefaultKeyPrefix+":registry:service:web", "limit").AsInt64()
		return err == nil && limit == registryTimes.Limit.Milliseconds()
	}); err != nil {
		b.t.Fatal(err)
	}
}
