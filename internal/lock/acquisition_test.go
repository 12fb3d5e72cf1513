package lock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var errParent = errors.New("parent")

// newHold is an acquisition with one entry that nothing else knows.
func newHold(parent context.Context) *acquisition {
	a := newAcquisition(nil, Config{Key: "k"}.WithDefaults(), 1, "h")
	a.hold(parent, grant{token: 7, until: uptime() + time.Hour, claimed: true})
	return a
}

// TestAcquisitionLife compares random lives of a hold with the plainest account of it: a number of
// entries, and the first thing that ended it.
func TestAcquisitionLife(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		parent, end := context.WithCancelCause(t.Context())
		defer end(nil)
		a := newHold(parent)
		entries, lost, over, done := 1, error(nil), false, false // done: the last entry has left a hold that was not lost
		cause := error(nil)                                      // of the context
		endContext := func(why error) {
			if cause == nil {
				cause = why
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"enter": func(rt *rapid.T) {
				want := lost == nil && !done && !over && cause == nil
				if got := a.enter(); got != want {
					rt.Fatalf("enter: %v, expected %v", got, want)
				} else if got {
					entries++
				}
			},
			"leave": func(rt *rapid.T) {
				if entries == 0 {
					rt.Skip()
				}
				entries--
				last, wasLost := a.leave()
				if last != (entries == 0) || wasLost != (lost != nil) {
					rt.Fatalf("leave: last %v, lost %v with %d entries left after %v", last, wasLost, entries, lost)
				}
				if done = last && !wasLost; done {
					a.cancel(ErrUnlocked)
					endContext(ErrUnlocked)
				}
			},
			"lose": func(rt *rapid.T) {
				why := rapid.SampledFrom([]error{ErrGone, ErrTaken, ErrExpired}).Draw(rt, "cause")
				if got, want := a.end(why), lost == nil && !done; got != want {
					rt.Fatalf("end: %v, expected %v", got, want)
				} else if got {
					lost = why
					endContext(why)
				}
			},
			"parent ends": func(*rapid.T) {
				end(errParent)
				endContext(errParent)
			},
			"clock": func(*rapid.T) { // the end passes
				a.until.Store(int64(uptime()))
				over = true
			},
			"extend": func(rt *rapid.T) {
				before := a.until.Load()
				to := uptime() + time.Duration(rapid.SampledFrom([]int{-1, 1, 2}).Draw(rt, "hours"))*time.Hour
				a.extend(to)
				if want := max(before, int64(to)); a.until.Load() != want {
					rt.Fatalf("until %d, expected %d", a.until.Load(), want)
				}
				over = a.over()
			},
			"": func(rt *rapid.T) {
				if got := context.Cause(a.ctx); !errors.Is(got, cause) {
					rt.Fatalf("cause %v, expected %v", got, cause)
				}
				w := word(a.state.Load())
				if a.live() != (lost == nil && !done) || w.count() != entries {
					rt.Fatalf("live %v with %d entries, expected %d, lost %v, done %v", a.live(), w.count(), entries, lost, done)
				}
			},
		})
	})
}

// TestStateWord: 64 goroutines enter and leave while one ends the hold. Of all entries one is the
// last, and no entry is taken after that.
func TestStateWord(t *testing.T) {
	t.Parallel()
	for round := range 100 {
		a := newHold(t.Context())
		var lasts, ends, entered, late atomic.Int64
		var over atomic.Bool
		leave := func() {
			last, lost := a.leave()
			if last && !lost {
				over.Store(true)
			}
			if last {
				lasts.Add(1)
			}
		}
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range 64 {
			all.Go(func() {
				<-begin
				for range 20 {
					was := over.Load()
					if !a.enter() {
						return
					}
					if was {
						late.Add(1)
					}
					entered.Add(1)
					runtime.Gosched()
					leave()
				}
				if i%8 == round%8 && round%2 == 0 && a.end(ErrGone) {
					ends.Add(1)
				}
			})
		}
		all.Go(func() {
			<-begin
			runtime.Gosched()
			leave() // the first entry
		})
		close(begin)
		all.Wait()
		w := word(a.state.Load())
		if lasts.Load() != 1 || late.Load() != 0 || ends.Load() > 1 || w.phase() != ended || w.count() != 0 {
			t.Fatalf("round %d: %d last entries, %d late ones, %d ends of %d entries; phase %d, count %d",
				round, lasts.Load(), late.Load(), ends.Load(), entered.Load(), w.phase(), w.count())
		}
	}
}

// TestGrantMailbox: a waiter finds the newest grant.
func TestGrantMailbox(t *testing.T) {
	t.Parallel()
	a := newAcquisition(nil, Config{}.WithDefaults(), 1, "h")
	a.grant(grant{token: 1})
	a.grant(grant{token: 2})
	if got := <-a.grants; got.token != 2 {
		t.Error(got)
	}
}

// TestProvisionalEnd: until the claim is answered a grant ends with its window or with its lease,
// whichever is shorter: the claim may begin the lease without an answer.
func TestProvisionalEnd(t *testing.T) {
	t.Parallel()
	m, err := New(Options{RedisURL: "redis://localhost:1", Liveness: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	g := &group{m: m}
	for lease, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: 42 * time.Second} {
		a := newAcquisition(g, Config{Key: "k", Lease: lease}.WithDefaults(), 1, "h")
		if got := g.provisional(a, time.Hour); got != time.Hour+want-MinMargin {
			t.Errorf("lease %s: %s", lease, got)
		}
	}
}
