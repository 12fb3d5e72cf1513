package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// guarded is what a lock protects. It finds two holders with live contexts, and tokens that do not
// grow.
type guarded struct {
	t      *testing.T
	owner  atomic.Pointer[Held]
	last   atomic.Int64
	rounds atomic.Int64
}

func (g *guarded) enter(h *Held) {
	if other := g.owner.Swap(h); other != nil && other.Context().Err() == nil && h.Context().Err() == nil {
		g.t.Errorf("two holders: tokens %d and %d", other.Token(), h.Token())
	}
	if last := g.last.Swap(h.Token()); h.Token() <= last {
		g.t.Errorf("token %d after %d", h.Token(), last)
	}
	g.rounds.Add(1)
}

func (g *guarded) leave(h *Held) { g.owner.CompareAndSwap(h, nil) }

// fairAndNot runs a test on both servers with locks of both kinds.
func fairAndNot(t *testing.T, test func(t *testing.T, redis *redistest.Target, fair bool)) {
	t.Helper()
	t.Parallel()
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair=%v", fair), func(t *testing.T) {
			t.Parallel()
			redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
				t.Parallel()
				test(t, redis, fair)
			})
		})
	}
}

// TestExclusion: four processes of four workers.
func TestExclusion(t *testing.T) {
	fairAndNot(t, func(t *testing.T, redis *redistest.Target, fair bool) {
		ctx, prefix := bounded(t), redis.Prefix(t)
		g := guarded{t: t}
		var workers sync.WaitGroup
		for range 4 {
			l := get(t, newManager(t, redis, prefix, patient), Config{Key: "k", Fair: fair})
			for range 4 {
				workers.Go(func() {
					for range 50 {
						h, err := l.Lock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						g.enter(h)
						g.leave(h)
						if err := h.Unlock(ctx); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		workers.Wait()
		noneHeld(t, redis, prefix)
	})
}

// TestExclusionInDoubt: a good part of the calls does not arrive, is not answered, or is carried
// out late; and waiters give up at random. All go on, nobody learns of a loss, and in the end
// nothing is left of the ghosts, long before the leases are over.
func TestExclusionInDoubt(t *testing.T) {
	fairAndNot(t, func(t *testing.T, redis *redistest.Target, fair bool) {
		ctx, prefix := bounded(t), redis.Prefix(t)
		g := guarded{t: t}
		var workers sync.WaitGroup
		var clients []*chaos
		for i := range 3 {
			m := newWrapped(t, redis, prefix, func(c rueidis.Client) rueidis.Client {
				clients = append(clients, &chaos{Client: c, late: 50 * time.Millisecond})
				clients[i].share.Store(5)
				return clients[i]
			}, func(o *Options) { o.Liveness = 20 * time.Second })
			l := get(t, m, Config{Key: "k", Fair: fair, Lease: 10 * time.Minute, Renewal: 50 * time.Millisecond})
			for worker := range 4 {
				workers.Go(func() {
					for round := range 15 {
						wait := time.Hour
						if (worker+round)%3 == 0 {
							wait = time.Duration(round) * 2 * time.Millisecond
						}
						h, err := l.TryLock(ctx, wait)
						if err != nil {
							if wait == time.Hour {
								t.Error(err)
							}
							continue
						}
						g.enter(h)
						g.leave(h)
						if err := h.Unlock(ctx); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		workers.Wait()
		for _, c := range clients {
			c.share.Store(0)
		}
		noneHeld(t, redis, prefix)
	})
}

// TestExclusionCutOff: processes are cut off from Redis in turn, while they hold and while they
// wait. Calls on their way are carried out or not, and late. The contexts of holders end before
// others get the lock.
func TestExclusionCutOff(t *testing.T) {
	fairAndNot(t, func(t *testing.T, redis *redistest.Target, fair bool) {
		ctx, prefix := bounded(t), redis.Prefix(t)
		g := guarded{t: t}
		var workers sync.WaitGroup
		var clients []*chaos
		var over atomic.Bool
		losses := make(chan error, 10_000)
		for i := range 3 {
			m := newWrapped(t, redis, prefix, func(c rueidis.Client) rueidis.Client {
				clients = append(clients, &chaos{Client: c, late: 300 * time.Millisecond})
				return clients[i]
			}, func(o *Options) { o.Liveness = 200 * time.Millisecond })
			l := get(t, m, Config{Key: "k", Fair: fair, Lease: MinLease, Renewal: 50 * time.Millisecond})
			for range 2 {
				workers.Go(func() {
					for !over.Load() {
						h, err := l.Lock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						g.enter(h)
						for range 5 { // at work for a while, or until it is lost
							select {
							case <-h.Context().Done():
							case <-time.After(20 * time.Millisecond):
							}
						}
						g.leave(h)
						if err := h.Unlock(ctx); err != nil {
							losses <- err
						}
					}
				})
			}
		}
		cut, lost := 0, false
		for ; !lost || cut < 3; cut++ {
			c := clients[cut%len(clients)]
			c.share.Store(34)
			select {
			case err := <-losses:
				lost = lost || errors.Is(err, ErrExpired)
			case <-time.After(600 * time.Millisecond): // a lease and more
			}
			if cut == 100 {
				t.Errorf("no loss in %d cuts", cut)
				break
			}
			c.share.Store(0)
		}
		over.Store(true)
		workers.Wait()
		t.Logf("%d rounds, %d cuts", g.rounds.Load(), cut)
		noneHeld(t, redis, prefix)
	})
}

// TestStopUnderLoad: a manager stops while its workers take, wait and give back.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	for round := range 10 {
		m := newManager(t, redis, prefix)
		var workers sync.WaitGroup
		busy := make(chan struct{}, 1000)
		for i := range 8 {
			l := get(t, m, Config{Key: fmt.Sprint(round), Fair: i%2 == 0, Lease: MinLease})
			workers.Go(func() {
				for {
					h, err := l.Lock(context.Background())
					if err != nil {
						return
					}
					select {
					case busy <- struct{}{}:
					default:
					}
					_ = h.Unlock(context.Background())
				}
			})
		}
		receive(t, busy)
		if err := m.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
		workers.Wait()
	}
}
