package transport

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/pick"
)

// service is a followed service.
type service struct {
	picker *pick.Picker
	stop   func()
	list   atomic.Pointer[registry.List]
	listed chan struct{} // closed with the first list
	once   sync.Once
}

// List returns the current list, for the picker.
func (s *service) List() *registry.List { return s.list.Load() }

func (s *service) set(list *registry.List) {
	if list == nil {
		return
	}
	s.list.Store(list)
	s.once.Do(func() { close(s.listed) })
}

// ready waits for the first list.
func (s *service) ready(ctx context.Context) (*pick.Picker, error) {
	select {
	case <-s.listed:
		return s.picker, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// body is the body of a response. When it ends, the call ends.
type body struct {
	io.ReadCloser
	once sync.Once
	done func()
}

// newBody wraps from. The body of a switched protocol can still be written to.
func newBody(from io.ReadCloser, of pick.Picked) io.ReadCloser {
	b := &body{ReadCloser: from, done: func() { of.Done(nil) }}
	if w, ok := from.(io.Writer); ok {
		return struct {
			io.ReadCloser
			io.Writer
		}{b, w}
	}
	return b
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(b.done)
	}
	return n, err
}

func (b *body) Close() error {
	b.once.Do(b.done)
	return b.ReadCloser.Close()
}
