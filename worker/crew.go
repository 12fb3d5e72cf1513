package worker

import "sync"

// maxResting is how many goroutines wait for their next attempt at most; each keeps a stack of some kilobytes.
const maxResting = 128

// crew runs attempts on goroutines that stay for further ones: a new goroutine has to grow its stack, by copying it twice,
// until a report has room on it, which took a sixth of the processor time of a node with many short jobs. The zero
// value is ready to use; it is safe for concurrent use.
type crew struct {
	mu sync.Mutex
	// resting has the members that wait, the last to come on top: its stack is in the processor's caches, and those at the bottom are
	// shrunk by the garbage collector. Guarded by mu, as is shut.
	resting []chan func()
	shut    bool
	// waits counts the members in resting, and those that were just taken from there.
	waits sync.WaitGroup
}

// run has do called on a goroutine at once, and returns.
func (c *crew) run(do func()) {
	c.mu.Lock()
	if n := len(c.resting); n > 0 {
		member := c.resting[n-1]
		c.resting = c.resting[:n-1]
		c.mu.Unlock()
		member <- do // there is room: one call a rest
		return
	}
	c.mu.Unlock()
	go c.member(do)
}

// member ends with a handler that ends its goroutine, and when enough others wait.
func (c *crew) member(do func()) {
	calls := make(chan func(), 1)
	for do != nil {
		do()
		do = c.rest(calls)
	}
}

// rest returns the next call, nil for none.
func (c *crew) rest(calls chan func()) func() {
	c.mu.Lock()
	if c.shut || len(c.resting) == maxResting {
		c.mu.Unlock()
		return nil
	}
	c.resting = append(c.resting, calls)
	c.waits.Add(1)
	c.mu.Unlock()
	defer c.waits.Done()
	return <-calls
}

// close ends the members that wait, and those that do not after their calls. It does not wait for the latter: a handler
// may never return.
func (c *crew) close() {
	c.mu.Lock()
	c.shut = true
	for _, member := range c.resting {
		close(member)
	}
	c.resting = nil
	c.mu.Unlock()
	c.waits.Wait()
}
