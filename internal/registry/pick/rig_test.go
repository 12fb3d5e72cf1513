package pick

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a picker over a list that the test sets, with a clock and a source of its own. It is for
// one goroutine.
type rig struct {
	*Picker
	t    *testing.T
	list atomic.Pointer[registry.List]
	time time.Time
}

func (r *rig) List() *registry.List { return r.list.Load() }

func newRig(t *testing.T, cfg Config, instances ...*registry.Instance) *rig {
	t.Helper()
	r := &rig{t: t, time: time.Unix(1000, 0)}
	r.set(instances...)
	cfg.Rand, cfg.Now = rand.NewPCG(1, 2).Uint64, func() time.Time { return r.time }
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	r.Picker = New(cfg, r)
	return r
}

func (r *rig) set(instances ...*registry.Instance) {
	r.list.Store(&registry.List{Service: "asr", State: registry.StateLive, Instances: instances})
}

func (r *rig) pick(key string) Picked {
	r.t.Helper()
	picked, err := r.Pick(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return picked
}

// shares picks n times, each call done at once, and returns the share of each id.
func (r *rig) shares(n int) map[string]float64 {
	r.t.Helper()
	out := map[string]float64{}
	for range n {
		picked := r.pick("")
		out[picked.Instance.ID] += 1 / float64(n)
		picked.Done(nil)
	}
	return out
}

func instance(id string, change ...func(*registry.Instance)) *registry.Instance {
	i := &registry.Instance{Registration: registry.Registration{Service: "asr", ID: id, Host: "10.0.0.1", Port: 80}, Weight: 1}
	for _, f := range change {
		f(i)
	}
	return i
}

func weighing(w float64) func(*registry.Instance) {
	return func(i *registry.Instance) { i.Weight = w }
}

func in(zone string) func(*registry.Instance) {
	return func(i *registry.Instance) { i.Metadata = map[string]string{"zone": zone} }
}

// fleet is n instances, sorted by id.
func fleet(n int, change ...func(*registry.Instance)) []*registry.Instance {
	out := make([]*registry.Instance, n)
	for i := range out {
		out[i] = instance(fmt.Sprintf("i%06d", i), change...)
	}
	return out
}
