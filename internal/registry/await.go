package registry

import (
	"context"
	"slices"
)

// Follow is Subscribe with an end for this listener alone. It suits resolver.Follower and
// transport.Follower. A service that cannot be followed is an empty list that says why.
func (c *Consumer) Follow(service string, call func(*List)) (stop func()) {
	f, err := c.follow(service)
	if err != nil {
		call(&List{Service: service, State: StateEmpty, Why: err.Error()})
		return func() {}
	}
	return c.listen(f, call)
}

// listen has call called with each list of a service until stop is called, which does not wait for a
// call under way.
func (c *Consumer) listen(f *followed, call func(*List)) (stop func()) {
	l := &listener{call: call}
	c.mu.Lock()
	f.listeners = append(f.listeners, l)
	c.mu.Unlock()
	c.tell(f)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f.listeners = slices.DeleteFunc(f.listeners, func(other *listener) bool { return other == l })
	}
}

// Await returns the list of a service once wanted says so, and the last one when ctx has ended
// before. Errors: those of AllInstances.
func (c *Consumer) Await(ctx context.Context, service string, wanted func(*List) bool) (*List, error) {
	f, err := c.listed(ctx, service)
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	defer c.listen(f, func(*List) { signal(changed) })()
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
