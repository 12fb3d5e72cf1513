package collector

import (
	"context"
	"sync"
	"time"
)

// shared is a reading of the machine that all collectors of a process take. A thousand workers in
// one process read the same files, so each of them costs little. It is safe for concurrent use.
type shared[T any] struct {
	read func(context.Context) (T, error)

	mu    sync.Mutex // held during a reading, so that no two read at once
	at    time.Time  // when the reading of value began; guarded by mu
	value T          // guarded by mu; no one changes what it holds
}

// take returns a reading that began at most MinInterval ago, so that a collector finds a new one each
// time. An error is not kept.
func (s *shared[T]) take(ctx context.Context) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.at).Abs() < MinInterval {
		return s.value, nil
	}
	value, err := s.read(ctx)
	if err == nil {
		s.value, s.at = value, now
	}
	return value, err
}
