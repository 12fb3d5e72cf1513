package registry

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/follow"
)

// Document reads the newest version of a document. Errors: a *freeslot.Error (invalid_argument,
// not_found); ErrNotStarted; or an error of Redis.
func (c *Consumer) Document(ctx context.Context, name string) (Document, error) {
	s, err := c.store()
	if err != nil {
		return Document{}, err
	}
	return s.Document(ctx, name, 0)
}

// PutDocument writes a new version and returns it. seen is the version that it was made from, 0 for
// a new document. If the content is the newest already, no new version is made. The user in Redis
// needs the rights of a replica: the role registry does not suffice. Errors: a *freeslot.Error
// (invalid_argument, conflict with the current version, overloaded); ErrNotStarted; or an error of
// Redis.
func (c *Consumer) PutDocument(
	ctx context.Context, name string, seen int64, content, author, note string,
) (version int64, err error) {
	s, err := c.store()
	if err != nil {
		return 0, err
	}
	return s.PutDocument(ctx, name, seen, content, author, note)
}

func (c *Consumer) store() (*Store, error) {
	if on := c.redis.on.Load(); on != nil {
		return &Store{on}, nil
	}
	if !c.started.Load() {
		return nil, ErrNotStarted
	}
	return nil, errNotConnected
}

// WatchDocument calls call with the document as it is, and with each new version, until stop is
// called. It may be called before Start. Fast successions of versions may be skipped, except the
// newest. A document without Version means that there is none, or no longer. While Redis is away
// there are no calls. One goroutine calls all watchers of a document, one after the other. They
// must not call the consumer's Stop. stop does not wait for a watcher that is being called. Errors:
// a *freeslot.Error for a bad name; ErrClosed.
func (c *Consumer) WatchDocument(name string, call func(Document)) (stop func(), err error) {
	if err := freeslot.ValidateName("name", name); err != nil {
		return nil, err
	}
	return c.documents.watch(name, call)
}

// AwaitDocument waits until the version differs from known, or until ctx ends, and returns the
// document at that time, without Version if there is none. It fails as WatchDocument does, and with
// the end of ctx if it has read nothing.
func (c *Consumer) AwaitDocument(ctx context.Context, name string, known int64) (Document, error) {
	found := make(chan Document, 1)
	stop, err := c.WatchDocument(name, func(d Document) {
		select {
		case <-found: // drop an older one
		default:
		}
		found <- d // never blocks: the watchers are called one after the other
	})
	if err != nil {
		return Document{}, err
	}
	defer stop()
	var last *Document
	for {
		select {
		case d := <-found:
			if last = &d; d.Version != known {
				return d, nil
			}
		case <-c.ctx.Done():
			return Document{}, ErrClosed
		case <-ctx.Done():
			if last != nil {
				return *last, nil
			}
			return Document{}, context.Cause(ctx)
		}
	}
}

// documents holds the documents that a consumer watches.
type documents struct {
	c *Consumer

	mu        sync.Mutex
	on        *conn               // guarded by mu; nil until Redis was reached
	hub       *hub                // guarded by mu; set with on
	watched   map[string]*watched // guarded by mu; by name
	byChannel map[string]*watched // guarded by mu
}

// watched is one document that has watchers.
type watched struct {
	name   string
	poller *follow.Poller
	cancel context.CancelFunc

	watchers []*documentWatcher // guarded by documents.mu
	current  *Document          // only its loop uses it; nil until it was read
}

// documentWatcher gets each version. Only the loop uses told.
type documentWatcher struct {
	call func(Document)
	told *Document
}

func (d *documents) watch(name string, call func(Document)) (stop func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.c.ctx.Err() != nil { // Stop takes mu between this and its wait
		return nil, ErrClosed
	}
	w := d.watched[name]
	if w == nil {
		ctx, cancel := context.WithCancel(d.c.ctx)
		w = &watched{name: name, cancel: cancel}
		w.poller = follow.NewPoller(d.c.opts.lookInterval(), firstLookRetry, func(ctx context.Context) error {
			return d.compare(ctx, w)
		})
		d.watched[name] = w
		d.want(w)
		d.c.loops.Go(func() {
			select {
			case <-d.c.redis.reached:
				w.poller.Run(ctx)
			case <-ctx.Done():
			}
		})
	}
	one := &documentWatcher{call: call}
	w.watchers = append(w.watchers, one)
	w.poller.Wake()
	return func() { d.unwatch(w, one) }, nil
}

func (d *documents) unwatch(w *watched, one *documentWatcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A new slice: the loop goes through the old one.
	var left []*documentWatcher
	for _, other := range w.watchers {
		if other != one {
			left = append(left, other)
		}
	}
	w.watchers = left
	if len(left) > 0 || d.watched[w.name] != w {
		return
	}
	w.cancel()
	delete(d.watched, w.name)
	if d.hub != nil {
		_, k := d.on.of(w.name)
		delete(d.byChannel, k.configChange(w.name))
		d.hub.leave(k.configChange(w.name))
	}
}

// want subscribes to a document's changes once Redis was reached. The caller holds mu.
func (d *documents) want(w *watched) {
	if d.hub == nil {
		return
	}
	runner, k := d.on.of(w.name)
	slot, _ := runner.Layout().Slot()
	d.byChannel[k.configChange(w.name)] = w
	d.hub.want(k.configChange(w.name), slot)
}

// use starts following over a connection.
func (d *documents) use(on *conn, h *hub) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on, d.hub = on, h
	for _, w := range d.watched {
		d.want(w)
	}
}

// poke makes the loop of a channel's document compare.
func (d *documents) poke(channel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.byChannel[channel]; w != nil {
		w.poller.Wake()
	}
}

func (d *documents) pokeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.watched {
		w.poller.Wake()
	}
}

// compare keeps a document in step with Redis, and tells its watchers.
func (d *documents) compare(ctx context.Context, w *watched) error {
	err := w.compare(ctx, d.c.redis.on.Load())
	switch {
	case err == nil:
		d.tell(ctx, w)
	case ctx.Err() == nil: // the consumer tells of an outage
		d.c.log.Debug("registry.document_unread", zap.String("document", w.name), zap.Error(err))
	}
	return err
}

// compare reads the document if its version differs from the current one.
func (w *watched) compare(ctx context.Context, on *conn) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if w.current != nil {
		version, at, err := on.documentStamp(ctx, w.name)
		if err != nil || w.current.same(version, at) {
			return err
		}
	}
	found, err := on.document(ctx, w.name)
	if err == nil {
		w.current = &found
	}
	return err
}

func (d *documents) tell(ctx context.Context, w *watched) {
	d.mu.Lock()
	watchers := w.watchers
	d.mu.Unlock()
	for _, one := range watchers {
		if one.told != w.current && ctx.Err() == nil {
			one.told = w.current
			one.call(*w.current)
		}
	}
}
