package worker

import (
	"context"
	"sync"
)

// slots hands out the node's capacity to handlers, first come first served: a
// job that needs many slots is not overtaken for ever by small ones.
//
// Invariant: used <= size, except that a job larger than size runs alone, and that
// what runs goes on when size shrinks.
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

// acquire waits until n slots are free and takes them, or returns ctx's error.
func (s *slots) acquire(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.takeNow(n) {
		s.mu.Unlock()
		return nil
	}
	w := &slotWaiter{n: n, ready: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()

	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.ready: // granted while we gave up: hand it on
		s.used -= n
	default:
		for i, other := range s.waiters {
			if other == w {
				s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
				break
			}
		}
	}
	s.grant()
	return ctx.Err()
}

// try takes n slots if they are free and nobody waits.
func (s *slots) try(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeNow(n)
}

func (s *slots) takeNow(n int) bool {
	if len(s.waiters) > 0 || !s.fits(n) {
		return false
	}
	s.used += n
	return true
}

func (s *slots) release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	s.grant()
}

// resize changes how many there are. Who waits for one that has come up gets it.
func (s *slots) resize(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	s.grant()
}

func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *slots) fits(n int) bool { return s.used == 0 || s.used+n <= s.size }

func (s *slots) grant() {
	for len(s.waiters) > 0 && s.fits(s.waiters[0].n) {
		s.used += s.waiters[0].n
		close(s.waiters[0].ready)
		s.waiters = s.waiters[1:]
	}
}
