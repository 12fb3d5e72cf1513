package reader

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestMain runs the tests with the rights of a replica.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, namelist.Access, version.Access) }

func bounded(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

var acme = []string{"Authorization", "Bearer acme-token"}

// rig is the routes on a control server that also has the segments.
type rig struct {
	*apitest.Server
	*Reader
	t      *testing.T
	prefix string
	client rueidis.Client // sees and changes all
}

func newRig(t *testing.T, redis *redistest.Target) *rig {
	t.Helper()
	r := newBlindRig(t, redis)
	r.must(r.Reader.Start(bounded(t)))
	t.Cleanup(func() { r.must(r.Reader.Stop(bounded(t))) })
	return r
}

// newBlindRig has events alone, and no second witness.
func newBlindRig(t *testing.T, redis *redistest.Target) *rig {
	t.Helper()
	prefix, log := redis.Prefix(t), zap.NewNop()
	control := namelist.NewControl(redis.RoleClient(t), prefix, redis.IsCluster(), log, nil)
	segments := version.NewSegments(version.SegmentsConfig{Prefix: prefix, Cluster: redis.IsCluster()}, redis.RoleClient(t), log, nil)
	r := &rig{t: t, prefix: prefix, client: redis.Client(t), Reader: New(Config{
		Subscriptions: redis.RoleClient(t), Log: log,
		Server: func(context.Context, string) (*version.Segments, error) { return segments, nil },
	}, control)}
	r.Server = apitest.New(t, api.Config{}, apitest.WithTokens, func(d *api.Deps) { d.Routes, d.Logger = []api.Routes{r.Routes}, log })
	return r
}

// onBoth runs a test on a server and on a cluster.
func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		test(t, newRig(t, redis))
	})
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) create(list string) {
	r.t.Helper()
	_, err := r.control.Create(bounded(r.t), list, namelist.Spec{})
	r.must(err)
}

func (r *rig) edit(list, id string) int64 {
	r.t.Helper()
	revision, err := r.control.Edit(bounded(r.t), list, namelist.EditRequest{Changes: []namelist.Change{{Entry: namelist.Entry{ID: id}}}})
	r.must(err)
	return revision
}

// publish makes a version of one segment and one block, which serves.
func (r *rig) publish(list string, ids ...string) namelist.Version {
	r.t.Helper()
	ctx, by := bounded(r.t), namelist.By{Author: "test", Note: "for operators alone"}
	op, err := r.control.Begin(ctx, list, namelist.Begin{Kind: namelist.OpImport, Holder: "test", Serving: namelist.AnyVersion, By: by})
	r.must(err)
	h, err := r.control.Head(ctx, list)
	r.must(err)
	v := namelist.Version{
		Number: op.Number, Build: fmt.Sprintf("%032x", op.Number), Segments: 1, Count: int64(len(ids)), Filter: filter.Fuse, FilterBytes: 1, Author: "test",
	}
	set, keys := []string{"", fmt.Sprintf("%s %d", v.Build, len(ids))}, []uint64(nil)
	for _, id := range ids {
		set, keys = append(set, id, ""), append(keys, form.Sum(h.Seed, id))
	}
	var b filter.Builder
	block, err := b.Build(filter.Fuse, keys)
	r.must(err)
	r.do(append([]string{"HSET", r.segment(list, &v)}, set...)...)
	r.do("SET", namelist.BlockKey(r.prefix, list, v.Number, 0), string(block.Append(nil, filter.Fuse, v.Build, 0, len(keys))))
	_, err = r.control.Done(ctx, list, op, v)
	r.must(err)
	op, err = r.control.Begin(ctx, list, namelist.Begin{Kind: namelist.OpSwitch, Number: v.Number, Holder: "test", Serving: namelist.AnyVersion, By: by})
	r.must(err)
	_, err = r.control.Switch(ctx, list, op, namelist.AnyVersion)
	r.must(err)
	return v
}

func (r *rig) segment(list string, v *namelist.Version) string {
	return namelist.SegmentKey(r.prefix, list, v.Number, 0)
}

func (r *rig) do(args ...string) {
	r.t.Helper()
	r.must(r.client.Do(bounded(r.t), r.client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()).Error())
}

// ask is an answer of this status that must have all of want.
func (r *rig) ask(method, target, content string, status int, want ...string) apitest.Response {
	r.t.Helper()
	got := r.Do(r.t, method, target, content, acme...)
	if got.Status != status {
		r.t.Fatalf("%s %s: %d %s, expected %d", method, target, got.Status, got.Text, status)
	}
	for _, w := range want {
		if !strings.Contains(got.Text, w) {
			r.t.Errorf("%s %s: %s, expected %s", method, target, got.Text, w)
		}
	}
	return got
}
