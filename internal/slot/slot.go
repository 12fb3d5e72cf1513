// Package slot hands out a bounded number of slots, which may change.
package slot

import (
	"context"
	"slices"
	"sync"
	"time"
)

// patience bounds the wait in Acquire. Holders free their slots earlier, unless they are stuck.
const patience = 10 * time.Second

// Slots hands out slots, first come first served: small requests cannot overtake a large one for
// ever. Its methods are safe for concurrent use.
//
// Invariant: used <= size, with two exceptions. A request larger than size gets its slots when no
// others are in use, and slots that are in use stay so when size shrinks.
type Slots struct {
	mu      sync.Mutex // guards the rest
	size    int
	used    int
	waiters []*waiter
}

type waiter struct {
	n     int
	ready chan struct{} // closed, under mu, when the slots are taken on its behalf
}

// New returns Slots of this size.
func New(size int) *Slots { return &Slots{size: size} }

// Acquire waits until n slots are free and takes them. It gives up with an error when ctx ends, and
// after patience.
func (s *Slots) Acquire(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.take(n) {
		s.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, patience)
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

// TryAcquire takes n slots if no one waits and they are free. It reports whether it did.
func (s *Slots) TryAcquire(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(n)
}

// Release gives back slots that Acquire took.
func (s *Slots) Release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	s.grant()
}

// InUse returns the number of slots in use.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Resize changes the number of slots. Waiting callers get the new slots.
func (s *Slots) Resize(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	s.grant()
}

func (s *Slots) take(n int) bool {
	free := len(s.waiters) == 0 && s.fits(n)
	if free {
		s.used += n
	}
	return free
}

func (s *Slots) fits(n int) bool { return s.used == 0 || s.used+n <= s.size }

func (s *Slots) grant() {
	for len(s.waiters) > 0 && s.fits(s.waiters[0].n) {
		s.used += s.waiters[0].n
		close(s.waiters[0].ready)
		s.waiters = s.waiters[1:]
	}
}
