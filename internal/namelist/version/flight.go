package version

import "sync"

// flight runs calls in the background, a few at once. After an error it runs no more calls.
type flight struct {
	slots chan struct{}
	calls sync.WaitGroup

	mu  sync.Mutex
	err error // the first; guarded by mu
}

func newFlight(atOnce int) *flight { return &flight{slots: make(chan struct{}, atOnce)} }

// run waits until there is room for the call, and then starts it.
func (f *flight) run(call func() error) {
	f.slots <- struct{}{}
	f.calls.Go(func() {
		defer func() { <-f.slots }()
		if f.failed() != nil {
			return
		}
		if err := call(); err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.err == nil {
				f.err = err
			}
		}
	})
}

func (f *flight) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// wait waits until no call runs, and returns the first error.
func (f *flight) wait() error {
	f.calls.Wait()
	return f.failed()
}
