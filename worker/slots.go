package worker

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slotPatience is how long an attempt waits for slots that stuck handlers keep, before its job is
// handed back. Other handlers free their slots before Redis can give them away.
const slotPatience = 10 * time.Second

// slots hands out the node's capacity to handlers, first come first served: small jobs cannot
// overtake a job of many slots for ever.
//
// Invariant: used <= size, with two exceptions. A job larger than size runs alone, and running jobs
// go on when size shrinks.
type slots struct {
	mu      sync.Mutex // guards the rest
	size    int
	used    int
	waiters []*slotWaiter
}

type slotWaiter struct {
	n     int
	ready chan struct{} // closed, under mu, when the slots are taken on its behalf
}

func newSlots(size int) *slots { return &slots{size: size} }

// acquire waits until n slots are free and takes them. It gives up with an error when ctx ends, and
// after slotPatience.
func (s *slots) acquire(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if len(s.waiters) == 0 && s.fits(n) {
		s.used += n
		s.mu.Unlock()
		return nil
	}
	w := &slotWaiter{n: n, ready: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiters, w); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	} else { // granted while it gave up: pass it on
		s.used -= n
	}
	s.grant()
	return ctx.Err()
}

func (s *slots) release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	s.grant()
}

// resize changes the number of slots. New slots go to waiting attempts.
func (s *slots) resize(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	s.grant()
}

func (s *slots) fits(n int) bool { return s.used == 0 || s.used+n <= s.size }

func (s *slots) grant() {
	for len(s.waiters) > 0 && s.fits(s.waiters[0].n) {
		s.used += s.waiters[0].n
		close(s.waiters[0].ready)
		s.waiters = s.waiters[1:]
	}
}
