package registry

import "context"

// Follow is Subscribe with an end for this listener alone. It suits resolver.Follower and
// transport.Follower. A service that cannot be followed is an empty list that says why.
func (c *Consumer) Follow(service string, call func(*List)) (stop func()) {
	_, stop, err := c.listen(service, &Listener{call: call})
	if err != nil {
		call(&List{Service: service, State: StateEmpty, Why: err.Error()})
		return func() {}
	}
	return stop
}

// listen follows a service and has l called with each list until stop is called, which does not
// wait for a call under way.
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

// Await returns the list of a service once wanted says so, and the last one when ctx has ended
// before. From then on it is a read, as AllInstances is. Errors: those of AllInstances.
func (c *Consumer) Await(ctx context.Context, service string, wanted func(*List) bool) (*List, error) {
	changed := make(chan struct{}, 1)
	f, stop, err := c.held(ctx, service, func(*List) { signal(changed) })
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

// Lists is the list of one service as it changes.
type Lists struct{ f *followed }

// List is the current list.
func (l Lists) List() *List { return l.f.list.Load() }

// Lists follows a service until Stop, and waits for its first list. Errors: those of AllInstances.
func (c *Consumer) Lists(ctx context.Context, service string) (Lists, error) {
	f, _, err := c.held(ctx, service, func(*List) {})
	return Lists{f}, err
}

// held is a service that has a list, and is followed until stop is called.
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
