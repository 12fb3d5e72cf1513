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

// listen has call called with each list of a service until stop is called, which does not wait for
// a call under way.
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

// Lists is the list of one service as it changes.
type Lists struct{ f *followed }

// List is the current list; nil before the first one, which [Consumer.Lists] waits for.
func (l Lists) List() *List { return l.f.list.Load() }

// Lists follows a service and waits for its first list. Errors: those of AllInstances.
func (c *Consumer) Lists(ctx context.Context, service string) (Lists, error) {
	f, err := c.listed(ctx, service)
	return Lists{f}, err
}

// Query asks Redis for a page of the instances that a filter takes, for a question that is asked
// once; a list that is followed answers sooner. cursor is "0" at first; next is "0" at the end. A
// page can be empty before the end, and two pages can have the same instance, whose lateness is not
// judged. Errors: an
// *freeslot.Error for a bad name or cursor; ErrNotStarted; what Redis or ctx say.
func (c *Consumer) Query(ctx context.Context, service string, filter *Filter, cursor string) (found []*Instance, next string, err error) {
	on := c.redis.on.Load()
	if on == nil {
		return nil, "", ErrNotStarted
	}
	details, next, _, err := (&Store{on}).Query(ctx, service, filter, cursor)
	for i := range details {
		found = append(found, &details[i].Instance)
	}
	return found, next, err
}
