package manage

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// held is a pace that stops the first call until goOn is closed.
func held() (pace func(context.Context, time.Duration) error, writing <-chan struct{}, goOn chan struct{}) {
	var calls atomic.Int64
	first, goOn := make(chan struct{}), make(chan struct{})
	return func(ctx context.Context, _ time.Duration) error {
		if calls.Add(1) > 1 {
			return nil
		}
		close(first)
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, first, goOn
}

// A build counts what other replicas' builds on the same server will still write.
func TestBudgetOfConcurrentBuilds(t *testing.T) {
	t.Parallel()
	pace, writing, goOn := held()
	r := newRig(t, redistest.Shared(t), func(r *rig) {
		r.put(namelist.Server{Name: "small", MaxBytes: 25_000}, version.SegmentsConfig{Pace: pace})
	})
	for _, list := range []string{"first", "later"} {
		_, err := r.control.Create(r.ctx, list, namelist.Spec{Server: "small"})
		r.check(err)
	}
	other := r.replica("r2", t.TempDir())
	first := r.begin(r.Manager, Upload{List: "first", Format: version.TXT, By: by}, lines(0, 1000)) // about 16,000 bytes
	<-writing
	later := r.begin(other, Upload{List: "later", Format: version.TXT, By: by}, lines(0, 1000))
	r.until("the second build has ended", func() bool {
		u, err := other.Upload(later.ID)
		r.check(err)
		later = u
		return u.State != Building
	})
	if later.State != Failed || !strings.Contains(later.Why, "reserved") {
		t.Errorf("the second build is %s: %s, %+v", later.State, later.Why, later.Version)
	}
	close(goOn)
	if first = r.ended(first.ID); first.State != Ready {
		t.Errorf("the first build is %s: %s", first.State, first.Why)
	}
	// What the first one reserved is over; what it has is not.
	r.rests("later") // the build that failed was not awaited
	if u := r.upload(Upload{List: "later", Format: version.TXT, By: by}, lines(0, 1000)); u.State != Failed || strings.Contains(u.Why, "reserved") {
		t.Errorf("a third build is %s: %s", u.State, u.Why)
	}
	r.rests("later")
	if u := r.upload(Upload{List: "later", Format: version.TXT, By: by}, lines(0, 100)); u.State != Ready {
		t.Errorf("a small build is %s: %s", u.State, u.Why)
	}
}

// A list that expects ids reserves their bytes: others do not get them.
func TestExpectedIDsAreReserved(t *testing.T) {
	t.Parallel()
	need := planned(1000)
	r := newRig(t, redistest.Shared(t), func(r *rig) {
		r.put(namelist.Server{Name: "small", MaxBytes: 2*need + need/2}, version.SegmentsConfig{})
	})
	for list, expected := range map[string]int64{"large": 2000, "other": 0} {
		r.check(r.Reservable(r.ctx, "small", expected))
		_, err := r.control.Create(r.ctx, list, namelist.Spec{Server: "small", Expected: expected})
		r.check(err)
	}
	if err := r.Reservable(r.ctx, "small", 1000); freeslot.CodeOf(err) != freeslot.CodeOverloaded || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("a list with 1,000 expected ids: %v; want overloaded, with what is reserved", err)
	}
	if u := r.upload(Upload{List: "other", Format: version.TXT, By: by}, lines(0, 1000)); u.State != Failed || !strings.Contains(u.Why, "reserved") {
		t.Errorf("a build in the reserved bytes is %s: %s; want it to fail", u.State, u.Why)
	}
	r.rests("other")
	if u := r.upload(Upload{List: "large", Format: version.TXT, By: by}, lines(0, 2000)); u.State != Ready {
		t.Errorf("a build of the list that reserved them is %s: %s; want it ready", u.State, u.Why)
	}
}
