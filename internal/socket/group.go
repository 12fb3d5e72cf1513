package socket

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Session is what an endpoint makes of a connection.
type Session interface {
	comparable
	// End gives the order to end it, unless one was given before. It must not block.
	End(by Order)
	// Cut ends its connection by force.
	Cut()
	// Done returns a channel that is closed when everything of the session is over.
	Done() <-chan struct{}
}

// Group counts what an endpoint serves, and knows its sessions. NewGroup makes one. It is safe for
// concurrent use.
type Group[S Session] struct {
	mu sync.Mutex // guards the fields that follow
	// serving counts the requests and sessions under way. idle is closed once Stop was called and
	// there are none.
	serving  int
	idle     chan struct{}
	sessions map[S]struct{}
	// by is the order of Stop; nil before it.
	by *Order
}

// NewGroup returns an empty group.
func NewGroup[S Session]() *Group[S] {
	return &Group[S]{idle: make(chan struct{}), sessions: make(map[S]struct{})}
}

// Enter counts one more. It returns how many there are then, and false once Stop was called.
func (g *Group[S]) Enter() (serving int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by != nil {
		return g.serving, false
	}
	g.serving++
	return g.serving, true
}

// EnterAgain counts one more for a caller that is counted already.
func (g *Group[S]) EnterAgain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.serving++
}

// Leave counts one less.
func (g *Group[S]) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.serving--
	if g.by != nil && g.serving == 0 {
		close(g.idle)
	}
}

// Add makes a session known. If Stop was called, and may have missed it, the session gets the order
// to end.
func (g *Group[S]) Add(s S) {
	g.mu.Lock()
	g.sessions[s] = struct{}{}
	by := g.by
	g.mu.Unlock()
	if by != nil {
		s.End(*by)
	}
}

// Remove forgets a session.
func (g *Group[S]) Remove(s S) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}

// All returns the sessions; the caller owns the slice.
func (g *Group[S]) All() []S {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.sessions))
}

// Len returns the number of sessions.
func (g *Group[S]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sessions)
}

// Await waits until all these sessions are over. When ctx ends it gives the others the order to
// end, and returns how many those are.
func Await[S Session](ctx context.Context, sessions []S, by Order) (cut int) {
	for _, s := range sessions {
		select {
		case <-s.Done():
			continue
		default:
		}
		select {
		case <-s.Done():
		case <-ctx.Done():
			s.End(by)
			cut++
		}
	}
	return cut
}

// Stop gives all sessions the order to end, and waits until nothing is served any more. It calls
// last, and if ctx ended first it then cuts the connections and returns ctx's error. It tolerates a
// second call.
func (g *Group[S]) Stop(ctx context.Context, by Order, last func()) error {
	g.mu.Lock()
	if g.by == nil {
		g.by = &by
		if g.serving == 0 {
			close(g.idle)
		}
	}
	g.mu.Unlock()
	for _, s := range g.All() {
		s.End(by)
	}
	var err error
	select {
	case <-g.idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	last()
	if err != nil {
		for _, s := range g.All() {
			s.Cut()
		}
	}
	return err
}
