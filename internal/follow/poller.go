package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/beat"
)

// ErrStopped is returned by calls to a Poller that has ended.
var ErrStopped = errors.New("the follower is stopped")

// Poller compares a copy with Redis when it is woken, and at each interval: messages can be lost,
// and an operator's edit sends none. Comparisons come one after the other, in one goroutine.
type Poller struct {
	every, retry time.Duration
	compare      func(context.Context) error
	woken        chan struct{}
	asks         chan ask
	ended        chan struct{}
}

type ask struct {
	do     func(context.Context) error
	answer chan error // with room for the answer
}

// NewPoller makes a Poller that calls compare at each interval, at a beat of the process. The
// wait after a failure is retry, then twice as long each time, up to every.
func NewPoller(every, retry time.Duration, compare func(context.Context) error) *Poller {
	return &Poller{
		every: every, retry: retry, compare: compare, woken: make(chan struct{}, 1), asks: make(chan ask),
		ended: make(chan struct{}),
	}
}

// Wake makes Run compare soon. It does not block.
func (p *Poller) Wake() { Wake(p.woken) }

// Run compares until ctx ends. Its first comparison comes after an interval, unless it is woken.
// Call it once.
func (p *Poller) Run(ctx context.Context) {
	defer close(p.ended)
	timer := time.NewTimer(p.pause(0))
	defer timer.Stop()
	failures := 0
	for {
		var a ask
		select {
		case <-ctx.Done():
			return
		case a = <-p.asks:
		case <-p.woken:
		case <-timer.C:
		}
		if a.do != nil {
			a.answer <- a.do(ctx)
			continue
		}
		if p.compare(ctx) == nil {
			failures = 0
		} else {
			failures++
		}
		timer.Reset(p.pause(failures))
	}
}

// pause returns the time until the next comparison. It varies, so that those who began together do
// not ask together.
func (p *Poller) pause(failures int) time.Duration {
	if failures > 0 {
		wait := Backoff(p.retry, p.every, failures-1)
		return wait/2 + rand.N(wait+1)
	}
	return beat.Pause(p.every - p.every/20 + rand.N(p.every/10+1))
}

// Sync compares now and returns the error of the comparison.
func (p *Poller) Sync(ctx context.Context) error { return p.Do(ctx, p.compare) }

// Do calls a function between two comparisons, and returns its error. It also fails with the end of
// ctx, and then the function may still be called, and with ErrStopped once Run has ended.
func (p *Poller) Do(ctx context.Context, do func(context.Context) error) error {
	a := ask{do: do, answer: make(chan error, 1)}
	select {
	case p.asks <- a:
	case <-ctx.Done():
		return fmt.Errorf("compare with redis: %w", ctx.Err())
	case <-p.ended:
		return ErrStopped
	}
	select {
	case err := <-a.answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("compare with redis: %w", ctx.Err())
	}
}

// Wake puts a token into a channel that holds one. A token that is there already serves this call,
// too.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
