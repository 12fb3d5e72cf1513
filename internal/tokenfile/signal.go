package tokenfile

import "sync"

// Signal tells when tokens have changed or one has expired.
type Signal struct {
	mu      sync.Mutex // guards changed
	changed chan struct{}
}

// NewSignal makes a signal.
func NewSignal() *Signal { return &Signal{changed: make(chan struct{})} }

// Changed returns a channel that is closed at the next change. Get the channel before you read the
// tokens, or you may miss a change.
func (s *Signal) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Notify tells of a change.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}
