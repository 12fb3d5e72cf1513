package registry

import (
	"context"

	"github.com/freeslot/freeslot/internal/follow"
)

// Follow works like Subscribe, but returns a function that ends this listener alone. It fits
// resolver.Follower and transport.Follower. If the service cannot be followed, call gets an empty
// list that says why.
func (c *Consumer) Follow(service string, call func(*List)) (stop func()) {
	_, stop, err := c.listen(service, &Listener{call: call})
	if err != nil {
		call(&List{Service: service, State: StateEmpty, Why: err.Error()})
		return func() {}
	}
	return stop
}

// listen follows a service and calls l with each list until stop is called. stop does not wait for
// a call under way.
func (c *Consumer) listen(service string, l *Listener) (f *followed, stop func(), err error) {
	f, err = c.follow(service, func(f *followed) { f.listeners = append(f.listeners, l) })
	if err != nil {
		return nil, nil, err
	}
	c.tell(f)
	return f, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f.leave(func(other *Listener) bool { return other == l })
		c.release(f)
	}, nil
}

// Await waits until wanted accepts the list of a service, and returns that list, or the last one if
// ctx ends first. From then on the service counts as read, as with AllInstances. It fails as
// AllInstances does.
func (c *Consumer) Await(ctx context.Context, service string, wanted func(*List) bool) (*List, error) {
	changed := make(chan struct{}, 1)
	f, stop, err := c.held(ctx, service, func(*List) { follow.Wake(changed) })
	if err != nil {
		return nil, err
	}
	defer stop()
	f.read.Store(true)
	for {
		if list := f.list.Load(); wanted(list) || ctx.Err() != nil {
			return list, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-c.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// Lists holds the list of one service as it changes.
type Lists struct{ f *followed }

// List returns the current list.
func (l Lists) List() *List { return l.f.list.Load() }

// Lists follows a service until Stop, and waits for its first list. It fails as AllInstances does.
func (c *Consumer) Lists(ctx context.Context, service string) (Lists, error) {
	f, _, err := c.held(ctx, service, func(*List) {})
	return Lists{f}, err
}

// held follows a service until stop is called, and waits until it has a list.
func (c *Consumer) held(ctx context.Context, service string, call func(*List)) (f *followed, stop func(), err error) {
	if !c.started.Load() {
		return nil, nil, ErrNotStarted
	}
	if f, stop, err = c.listen(service, &Listener{call: call}); err != nil {
		return nil, nil, err
	}
	if err = c.first(ctx, f); err != nil {
		stop()
	}
	return f, stop, err
}

// Query asks Redis for a page of the instances that a filter selects, for a question that is asked
// once; a followed list answers sooner. cursor is "0" at first; next is "0" at the end. A page can
// be empty before the end, and two pages can have the same instance. Lateness is not judged.
// Errors: an *freeslot.Error for a bad name or cursor; ErrNotStarted; an error of Redis or ctx.
func (c *Consumer) Query(
	ctx context.Context, service string, filter *Filter, cursor string,
) (found []*Instance, next string, err error) {
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
