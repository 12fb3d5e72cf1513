package client

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

// Dispatches returns deliveries from the gateway. Their ids are of this process alone, and after is
// ignored: nothing is returned twice. A call also means that the worker has taken in what the call
// before returned.
func (s *Store) Dispatches(
	ctx context.Context, _, _ string, block time.Duration, limit int,
) ([]cell.Dispatch, error) {
	var timeout <-chan time.Time
	for {
		found, err := s.take(limit)
		if len(found) > 0 || err != nil {
			return found, err
		}
		if timeout == nil {
			timeout = time.After(block)
		}
		select {
		case <-s.arrival:
		case <-timeout:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Store) take(limit int) ([]cell.Dispatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = s.taken
	notify(s.settled)
	if s.fatal != nil {
		return nil, s.fatal
	}
	n := min(len(s.queue), limit)
	found := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	s.taken += uint64(n)
	return found, nil
}

// push queues deliveries from the gateway. The caller holds mu.
func (s *Store) push(found ...cell.Dispatch) {
	for _, d := range found {
		if len(s.queue) >= s.queueLimit {
			s.cfg.Beat()
			break
		}
		s.arrived++
		d.ID = strconv.FormatUint(s.arrived, 10) + "-0"
		s.queue = append(s.queue, d)
	}
	notify(s.arrival)
}
