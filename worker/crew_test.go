package worker

import (
	"runtime"
	"sync"
	"testing"
)

// TestCrew: every call is made, once, on goroutines that stay, of which no more wait than may; a call that ends its goroutine
// takes no other with it.
func TestCrew(t *testing.T) {
	t.Parallel()
	var c crew
	var mu sync.Mutex
	seen := make(map[int]int)
	for range 3 {
		var calls sync.WaitGroup
		begun := make(chan struct{})
		for i := range 3 * maxResting {
			calls.Add(1)
			c.run(func() {
				defer calls.Done()
				<-begun
				mu.Lock()
				seen[i]++
				mu.Unlock()
				if i%50 == 0 {
					runtime.Goexit()
				}
			})
		}
		close(begun)
		calls.Wait()
	}
	for i := range 3 * maxResting {
		if seen[i] != 3 {
			t.Errorf("call %d was made %d times", i, seen[i])
		}
	}
	c.mu.Lock()
	if n := len(c.resting); n > maxResting {
		t.Errorf("%d goroutines wait", n)
	}
	c.mu.Unlock()
	c.close()
	done := make(chan struct{})
	c.run(func() { close(done) })
	<-done
}

// TestCrewStays: the goroutine of a call is that of the one before.
func TestCrewStays(t *testing.T) {
	t.Parallel()
	var c crew
	defer c.close()
	resting := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.resting)
	}
	for range 100 {
		done := make(chan struct{})
		c.run(func() { close(done) })
		<-done
		for resting() == 0 {
			runtime.Gosched()
		}
		if n := resting(); n > 1 {
			t.Fatalf("%d goroutines, one after the other", n)
		}
	}
}
