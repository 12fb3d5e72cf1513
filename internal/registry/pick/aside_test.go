package pick

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/registry"
)

func TestSetAsideDoubles(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Policy: RoundRobin}, fleet(2)...)
	bad := r.pick("")
	refuse := func() { bad.Done(fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)) }
	for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
		refuse()
		refuse() // the refusal of a call that began before changes nothing
		r.time = r.time.Add(time.Duration(seconds)*time.Second - 1)
		if got := r.shares(10)[bad.Instance.ID]; got != 0 {
			t.Fatalf("picked before %d s are over", seconds)
		}
		r.time = r.time.Add(1)
		// Not Done(nil), which would be a success.
		a, b := r.pick(""), r.pick("")
		if a.Instance != bad.Instance && b.Instance != bad.Instance {
			t.Fatalf("not picked after %d s", seconds)
		}
	}
	bad.Done(nil)
	refuse()
	r.time = r.time.Add(time.Second)
	if got := r.shares(10)[bad.Instance.ID]; got == 0 {
		t.Error("a success did not clear the count")
	}
}

// twin is what the rules of setting aside say, by maps and without any hurry.
type twin struct {
	now      time.Duration
	until    map[string]time.Duration
	refusals map[string]int
	usable   []string
}

func (w *twin) aside() (out []string) {
	for _, id := range w.usable {
		if w.until[id] > w.now {
			out = append(out, id)
		}
	}
	return out
}

func (w *twin) refused(id string) {
	if !slices.Contains(w.usable, id) || w.until[id] > w.now {
		return
	}
	w.refusals[id]++
	if 2*(len(w.aside())+1) <= len(w.usable) {
		w.until[id] = w.now + min(30*time.Second, time.Second<<(w.refusals[id]-1))
	}
}

func (w *twin) succeeded(id string) { w.until[id], w.refusals[id] = 0, 0 }

func (w *twin) set(usable []string) {
	for id := range w.refusals {
		if !slices.Contains(usable, id) {
			w.succeeded(id) // forgotten
		}
	}
	w.usable = usable
	for len(w.aside())*2 > len(usable) {
		soonest := slices.MinFunc(w.aside(), func(a, b string) int { return int(w.until[a] - w.until[b]) })
		w.until[soonest] = 0
	}
}

func TestSetAsideAgreesWithTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom(policies).Draw(rt, "policy")
		all := fleet(8)
		r := newRig(t, Config{Policy: policy}, all...)
		w := &twin{until: map[string]time.Duration{}, refusals: map[string]int{}}
		for _, inst := range all {
			w.usable = append(w.usable, inst.ID)
		}
		r.pick("").release()
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			r.time = r.time.Add(1) // so that no two come back at once
			w.now = r.time.Sub(time.Unix(1000, 0))
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				r.time = r.time.Add(time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ms")) * time.Millisecond)
				w.now = r.time.Sub(time.Unix(1000, 0))
			case 1: // another list; draining ones stay in it
				mask := rapid.IntRange(1, 255).Draw(rt, "usable")
				var next []*registry.Instance
				var usable []string
				for i, inst := range all {
					if mask>>i&1 == 1 {
						next, usable = append(next, inst), append(usable, inst.ID)
					} else {
						next = append(next, instance(inst.ID, func(i *registry.Instance) { i.Draining = true }))
					}
				}
				r.set(next...)
				r.pick("").release()
				w.set(usable)
			default:
				picked := r.pick(fmt.Sprint(rapid.IntRange(0, 20).Draw(rt, "key")))
				id := picked.Instance.ID
				if slices.Contains(w.aside(), id) {
					rt.Fatalf("%s picked although it is set aside: %v", id, w.aside())
				}
				if 2*len(w.aside()) > len(w.usable) {
					rt.Fatalf("%v of %v are set aside", w.aside(), w.usable)
				}
				if rapid.Bool().Draw(rt, "refuses") {
					picked.Done(ErrUnavailable)
					w.refused(id)
				} else {
					picked.Done(nil)
					w.succeeded(id)
				}
			}
			for _, id := range w.usable {
				m := r.member(id)
				if got, want := r.isAside(m), slices.Contains(w.aside(), id); got != want {
					rt.Fatalf("%s is set aside: %v, want %v", id, got, want)
				}
			}
		}
	})
}

// release ends a call that says nothing of the instance.
func (d Picked) release() { d.Done(fmt.Errorf("no matter")) }

func (r *rig) member(id string) *state {
	for _, m := range r.ready.Load().all.members {
		if m.instance.ID == id {
			return m.state
		}
	}
	return &state{}
}

// A new life of an instance begins anew; a change of its metadata does not.
func TestNewLife(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, fleet(4)...)
	bad := r.pick("")
	bad.Done(ErrUnavailable)
	id := bad.Instance.ID
	r.set(fleet(4, in("west"))...)
	if r.shares(200)[id] > 0 {
		t.Error("a change of metadata took the instance back")
	}
	r.set(fleet(4, func(i *registry.Instance) { i.Epoch = "second" })...)
	if r.shares(200)[id] == 0 {
		t.Error("a new life is set aside for the last one")
	}
}
