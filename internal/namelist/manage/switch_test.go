package manage

import (
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// A switch waits for processes with Redis as long as it waits at all, and shortly for clients that
// anyone with a token can invent.
func TestPrepared(t *testing.T) {
	t.Parallel()
	small := &namelist.Head{Next: &namelist.Version{FilterBytes: 1000, Bytes: 1 << 30}}
	large := &namelist.Head{Next: &namelist.Version{FilterBytes: 100 << 20}}
	for _, c := range []struct {
		name   string
		head   *namelist.Head
		lack   namelist.Lacking
		waited time.Duration
		want   bool
	}{
		{"all have it", large, namelist.Lacking{}, 0, true},
		{"1,000 clients through replicas lack it", small, namelist.Lacking{Relayed: 1000}, 2 * time.Second, false},
		{"and go on to lack it", small, namelist.Lacking{Relayed: 1000}, 3 * time.Second, true},
		{"a large filter needs longer", large, namelist.Lacking{Relayed: 1}, 3 * time.Second, false},
		{"but not for ever", large, namelist.Lacking{Relayed: 1}, 23 * time.Second, true},
		{"a process with Redis lacks it", small, namelist.Lacking{Direct: 1}, 29 * time.Second, false},
	} {
		if got := prepared(c.lack, c.waited, patience(c.head)); got != c.want {
			t.Errorf("%s, for %s: the pointer may move: %v; want %v", c.name, c.waited, got, c.want)
		}
	}
}

// TestSwitchOfStoppedReplica: a replica that stops gives up its switch. The list takes the next
// operation at once, and not after the lease.
func TestSwitchOfStoppedReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 100))
	r.serves("vip", 1)
	r.upload(Upload{List: "vip", Format: version.TXT, By: by}, lines(0, 99))
	report := namelist.ClientReport{Birth: r.head("vip").Birth, Serves: 1, Loaded: []int64{1}}
	r.check(r.control.Report(r.ctx, "asleep", map[string]namelist.ClientReport{"vip": report})) // the switch waits for it
	op, err := r.Switch(r.ctx, "vip", SwitchRequest{Number: 2, Serving: namelist.AnyVersion, By: by})
	r.check(err)
	r.until("version 2 is the next one", func() bool { return r.head("vip").Next != nil })
	r.check(r.Stop(r.ctx))
	if h := r.head("vip"); h.Op.ID != "" || h.Next != nil || h.Serving.Number != 1 {
		t.Errorf("operation %q (it was %s), next %v, version %d serves; want none and version 1", h.Op.ID, op.ID, h.Next, h.Serving.Number)
	}
	other := r.replica("r2", t.TempDir())
	_, err = other.Switch(r.ctx, "vip", SwitchRequest{Number: 2, Serving: namelist.AnyVersion, Now: true, By: by})
	r.check(err)
	r.serves("vip", 2)
}
