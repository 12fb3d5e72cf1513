package socket

import (
	"context"
	"errors"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// fake is a session that ends when it gets an order, unless it is stuck until it is cut.
type fake struct {
	stuck bool
	order *Order
	done  chan struct{}
}

func newFake(stuck bool) *fake { return &fake{stuck: stuck, done: make(chan struct{})} }

func (f *fake) Done() <-chan struct{} { return f.done }
func (f *fake) Cut()                  { close(f.done) }

func (f *fake) End(by Order) {
	if f.order != nil {
		return
	}
	if f.order = &by; !f.stuck {
		close(f.done)
	}
}

// serve adds a session that leaves when it is over.
func serve(t *testing.T, g *Group[*fake], f *fake) {
	t.Helper()
	if _, ok := g.Enter(); !ok {
		t.Fatal("the group is full, expected a place")
	}
	g.Add(f)
	go func() {
		<-f.done
		g.Remove(f)
		g.Leave()
	}()
}

func TestGroupStops(t *testing.T) {
	t.Parallel()
	g, f, last := NewGroup[*fake](), newFake(false), 0
	serve(t, g, f)
	for range 2 {
		if err := g.Stop(waittest.Context(t), Order{Label: "stopped"}, func() { last++ }); err != nil {
			t.Fatal(err)
		}
	}
	if f.order == nil || f.order.Label != "stopped" || last != 2 || g.Len() != 0 {
		t.Errorf("order %+v, %d calls, %d sessions; expected stopped, 2 and 0", f.order, last, g.Len())
	}
	if _, ok := g.Enter(); ok {
		t.Error("a stopped group takes one more")
	}
	late := newFake(false)
	g.EnterAgain() // as a request does that Stop has missed
	g.Add(late)
	if late.order == nil {
		t.Error("a session that Stop has missed goes on")
	}
}

func TestGroupCutsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	g, f := NewGroup[*fake](), newFake(true)
	serve(t, g, f)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Stop(over, Order{}, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected that the context has ended", err)
	}
	waittest.Receive(t, "the cut", f.done)
}

func TestAwait(t *testing.T) {
	t.Parallel()
	gone, stays := newFake(false), newFake(true)
	gone.End(Order{})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if cut := Await(over, []*fake{gone, stays}, Order{Label: "late"}); cut != 1 || stays.order == nil || stays.order.Label != "late" {
		t.Errorf("%d sessions got the order %+v, expected 1 and late", cut, stays.order)
	}
}
