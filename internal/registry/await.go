package registry

import (
	"context"
	"slices"
)

// Await returns the list of a service once wanted says so, and the last one when ctx has ended
// before. Errors: those of AllInstances.
func (c *Consumer) Await(ctx context.Context, service string, wanted func(*List) bool) (*List, error) {
	f, err := c.listed(ctx, service)
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	mine := &listener{call: func(*List) { signal(changed) }}
	c.mu.Lock()
	f.listeners = append(f.listeners, mine)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f.listeners = slices.DeleteFunc(f.listeners, func(l *listener) bool { return l == mine })
	}()
	for {
		if list := f.list.Load(); wanted(list) || ctx.Err() != nil {
			return list, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-f.gone:
			return nil, ErrNotSubscribed
		case <-c.ctx.Done():
			return nil, ErrClosed
		}
	}
}
