package slot

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestSlotsServeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(4)
		ctx := t.Context()
		if err := s.Acquire(ctx, 3); err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 2)
		go func() { _ = s.Acquire(ctx, 4); order <- 4 }()
		synctest.Wait()
		go func() { _ = s.Acquire(ctx, 1); order <- 1 }()
		synctest.Wait()
		if len(order) != 0 {
			t.Fatal("a small job overtook one that waits for all slots")
		}
		s.Release(3)
		synctest.Wait()
		if len(order) != 1 || <-order != 4 {
			t.Fatal("the first waiter was not served first")
		}
		s.Release(4)
		synctest.Wait()
		if <-order != 1 || s.InUse() != 1 {
			t.Fatalf("in use %d, expected 1", s.InUse())
		}
	})
}

func TestSlotsCancelledWaiterLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		if err := s.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- s.Acquire(ctx, 2) }()
		synctest.Wait()
		served := make(chan error, 1)
		go func() { served <- s.Acquire(t.Context(), 1) }()
		synctest.Wait()
		cancel()
		if err := <-failed; err == nil {
			t.Fatal("a cancelled waiter got its slots")
		}
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		if s.InUse() != 2 {
			t.Fatalf("in use %d, expected 2", s.InUse())
		}
	})
}

func TestSlotsLetALargerJobRunAlone(t *testing.T) {
	s := New(2)
	if err := s.Acquire(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Acquire(ctx, 1); err == nil {
		t.Fatal("acquired with an ended context")
	}
	s.Release(5)
	if s.InUse() != 0 {
		t.Fatalf("in use %d, expected 0", s.InUse())
	}
}

// Invariant: used <= size, and all of it comes back, no matter who gives up when.
func TestSlotsNeverOvercommit(t *testing.T) {
	const size = 8
	s := New(size)
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
				if s.Acquire(ctx, n) == nil {
					if now := held.Add(int64(n)); now > size {
						t.Errorf("%d slots held, expected at most %d", now, size)
					}
					held.Add(int64(-n))
					s.Release(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if s.InUse() != 0 || len(s.waiters) != 0 {
		t.Fatalf("in use %d with %d waiters, expected none", s.InUse(), len(s.waiters))
	}
}

func TestSlotsResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		ctx := t.Context()
		for range 2 {
			if err := s.Acquire(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		got := make(chan struct{}, 3)
		for range 3 {
			go func() { _ = s.Acquire(ctx, 1); got <- struct{}{} }()
		}
		expect := func(used, granted int) {
			t.Helper()
			synctest.Wait()
			if s.InUse() != used || len(got) != granted {
				t.Fatalf("%d in use and %d granted, expected %d and %d", s.InUse(), len(got), used, granted)
			}
		}
		expect(2, 0)
		s.Resize(3)
		expect(3, 1)
		s.Resize(1)
		expect(3, 1) // what runs goes on
		s.Release(1)
		s.Release(1)
		expect(1, 1)
		s.Release(1)
		expect(1, 2)
		s.Resize(10)
		expect(2, 3)
	})
}

// TestSlotsServeSeveralAtOnce: a large job that ends makes room for several small ones.
func TestSlotsServeSeveralAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(3)
		if err := s.Acquire(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			go func() { _ = s.Acquire(t.Context(), 1) }()
		}
		synctest.Wait()
		s.Release(3)
		synctest.Wait()
		if s.InUse() != 3 {
			t.Errorf("in use %d, expected 3", s.InUse())
		}
	})
}
