package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
)

func TestLeaseLoss(t *testing.T) {
	var causes chan error // made within the bubble, as its time stands still otherwise
	var release chan struct{}
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		cancelled := f.assign(1, freeslot.Job{Service: "heeds", OnLeaseLoss: freeslot.LeaseLossCancel})
		goesOn := f.assign(2, freeslot.Job{Service: "works", OnLeaseLoss: freeslot.LeaseLossContinue})
		byDefault := f.assign(3, freeslot.Job{Service: "works"})
		var last time.Time // of the answered heartbeats
		f.with(func() { f.onHeartbeat = func(int) error { last = time.Now(); return nil } })
		time.Sleep(time.Minute) // virtual time
		f.with(func() { f.away = true })
		if cause := <-causes; !errors.Is(cause, ErrLeaseLost) {
			t.Errorf("cause %v", cause)
		}
		// The lease counts from when the agent sent the heartbeat, which a gateway may hold back.
		held := time.Duration(0)
		if throughGateway {
			held = 50 * time.Millisecond
		}
		if after := time.Since(last); after > w.limit || after < w.limit-held {
			t.Errorf("cancelled %s after the last heartbeat, the limit is %s", after, w.limit)
		}
		time.Sleep(time.Minute) // virtual time
		f.with(func() { f.away = false })
		wantRetry(t, f.end(t, cancelled), freeslot.JobErrorLeaseLost, "could not reach Redis for 8s")
		close(release)
		for _, a := range []struct{ state freeslot.State }{{f.end(t, goesOn).State}, {f.end(t, byDefault).State}} {
			if a.state != freeslot.StateSucceeded {
				t.Errorf("%s, expected the handler to go on", a.state)
			}
		}
		// With Redis back the lease is there again.
		time.Sleep(time.Minute) // virtual time
		late := f.assign(4, freeslot.Job{Service: "heeds", OnLeaseLoss: freeslot.LeaseLossCancel})
		synctest.Wait()
		f.cancel(late)
		if cause := <-causes; !errors.Is(cause, ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
	}, func(*Worker) { causes, release = make(chan error, 1), make(chan struct{}) }, handle("heeds", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}), handle("works", func(context.Context, *Job) (any, error) { <-release; return nil, nil }))
}

// A job that went to another node meanwhile gets no completion.
func TestLeaseLossOfAJobGivenAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s", OnLeaseLoss: freeslot.LeaseLossCancel})
		synctest.Wait()
		f.with(func() { f.away = true; f.epoch = ""; delete(f.owned, a) })
		time.Sleep(time.Minute) // virtual time
		f.with(func() { f.away = false })
		f.await(t, "the node to register again", func() bool { return f.registered == 2 })
		time.Sleep(time.Minute) // virtual time
		f.with(func() {
			if _, ended := f.ended[a]; ended {
				t.Error("the job was ended although it is not the node's any more")
			}
		})
		if n := w.slots.InUse(); n != 0 {
			t.Errorf("%d slots in use", n)
		}
	}, handle("s", untilCancelled))
}

// An attempt that waits for slots does not begin while the lease is lost.
func TestLeaseLossBeforeTheBeginning(t *testing.T) {
	l := newLedger(t.Context(), 2)
	a := l.offer(id(1), &freeslot.Job{OnLeaseLoss: freeslot.LeaseLossCancel}, "", false)
	b := l.offer(id(2), &freeslot.Job{}, "", false)
	if stopped := l.loseLease(); len(stopped) != 0 || l.begin(a) || !l.begin(b) {
		t.Errorf("%v stopped; expected the first attempt alone not to begin", stopped)
	}
	comp := (&Worker{ledger: l}).unbegun(a)
	if cause := context.Cause(a.ctx); !errors.Is(cause, ErrLeaseLost) || !strings.Contains(comp.Error.Message, "cut off from Redis") {
		t.Errorf("cause %v, completion %+v", cause, comp)
	}
	l.renewLease()
	if c := l.offer(id(3), &freeslot.Job{OnLeaseLoss: freeslot.LeaseLossCancel}, "", false); !l.begin(c) {
		t.Error("no attempt begins once the lease is renewed")
	}
}
