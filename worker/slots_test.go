package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func TestSlotsServeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4)
		ctx := t.Context()
		if err := s.acquire(ctx, 3); err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 2)
		go func() { _ = s.acquire(ctx, 4); order <- 4 }()
		synctest.Wait()
		go func() { _ = s.acquire(ctx, 1); order <- 1 }()
		synctest.Wait()
		if len(order) != 0 {
			t.Fatal("a small job overtook one that waits for all slots")
		}
		s.release(3)
		synctest.Wait()
		if len(order) != 1 || <-order != 4 {
			t.Fatal("the first waiter was not served first")
		}
		s.release(4)
		synctest.Wait()
		if <-order != 1 || s.inUse() != 1 {
			t.Fatalf("in use %d, expected 1", s.inUse())
		}
	})
}

func TestSlotsCancelledWaiterLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		if err := s.acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- s.acquire(ctx, 2) }()
		synctest.Wait()
		served := make(chan error, 1)
		go func() { served <- s.acquire(t.Context(), 1) }()
		synctest.Wait()
		cancel()
		if err := <-failed; err == nil {
			t.Fatal("a cancelled waiter got its slots")
		}
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		if s.inUse() != 2 {
			t.Fatalf("in use %d, expected 2", s.inUse())
		}
	})
}

func TestSlotsLetALargerJobRunAlone(t *testing.T) {
	s := newSlots(2)
	if err := s.acquire(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.acquire(ctx, 1); err == nil {
		t.Fatal("acquired with an ended context")
	}
	s.release(5)
	if s.inUse() != 0 {
		t.Fatalf("in use %d, expected 0", s.inUse())
	}
}

// Invariant: used <= size, and all of it comes back, no matter who gives up when.
func TestSlotsNeverOvercommit(t *testing.T) {
	const size = 8
	s := newSlots(size)
	var held atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			n := i%size + 1
			for round := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if round%3 == 0 {
					go cancel()
				}
				if s.acquire(ctx, n) == nil {
					if now := held.Add(int64(n)); now > size {
						t.Errorf("%d slots held, expected at most %d", now, size)
					}
					held.Add(int64(-n))
					s.release(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if s.inUse() != 0 || len(s.waiters) != 0 {
		t.Fatalf("in use %d with %d waiters, expected none", s.inUse(), len(s.waiters))
	}
}

func TestSlotsResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		ctx := t.Context()
		for range 2 {
			if err := s.acquire(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		got := make(chan struct{}, 3)
		for range 3 {
			go func() { _ = s.acquire(ctx, 1); got <- struct{}{} }()
		}
		expect := func(used, granted int) {
			t.Helper()
			synctest.Wait()
			if s.inUse() != used || len(got) != granted {
				t.Fatalf("%d in use and %d granted, expected %d and %d", s.inUse(), len(got), used, granted)
			}
		}
		expect(2, 0)
		s.resize(3)
		expect(3, 1)
		s.resize(1)
		expect(3, 1) // what runs goes on
		s.release(1)
		s.release(1)
		expect(1, 1)
		s.release(1)
		expect(1, 2)
		s.resize(10)
		expect(2, 3)
	})
}

// TestSlotsServeSeveralAtOnce: a large job that ends makes room for several small ones.
func TestSlotsServeSeveralAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(3)
		if err := s.acquire(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			go func() { _ = s.acquire(t.Context(), 1) }()
		}
		synctest.Wait()
		s.release(3)
		synctest.Wait()
		if s.inUse() != 3 {
			t.Errorf("in use %d, expected 3", s.inUse())
		}
	})
}
