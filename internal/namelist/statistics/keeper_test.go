package statistics

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

type rig struct {
	*namelist.Control
	t     *testing.T
	birth string
}

func newRig(t *testing.T, redis *redistest.Target) *rig {
	t.Helper()
	r := &rig{
		Control: namelist.NewControl(redis.RoleClient(t), redis.Prefix(t), redis.IsCluster(), zap.NewNop(), nil), t: t,
	}
	h, err := r.Create(waittest.Context(t), "vip", namelist.Spec{})
	r.must(err)
	r.birth = h.Birth
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

var owner = namelist.Owner{Tenant: "acme", Name: "web"}

// says reports what a client has counted; without birth it is the client's last report.
func (r *rig) says(client, birth, incarnation string, age time.Duration, c count.Counts) {
	r.t.Helper()
	report := count.Report{Incarnation: incarnation, AgeMS: age.Milliseconds(), Counts: c}
	_, err := r.Relay(
		waittest.Context(r.t), owner, client,
		map[string]namelist.ClientReport{"vip": {Birth: birth, Counts: report.String()}},
	)
	r.must(err)
}

func (r *rig) wants(what string, k *Keeper, hits, misses, unknown uint64) {
	r.t.Helper()
	r.must(k.Add(waittest.Context(r.t), "vip"))
	got, _, err := k.Summary(waittest.Context(r.t), "vip", time.Hour, time.Minute, owner.String())
	r.must(err)
	if want := counts(hits, misses, unknown); got.Total != want {
		r.t.Errorf("%s: %v; want %v", what, got.Total, want)
	}
}

// A report counts once, however often and whenever it comes.
func TestCountedOnce(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		k, other := New(r.Control, zap.NewNop(), nil), New(r.Control, zap.NewNop(), nil)
		r.wants("without clients", k, 0, 0, 0)
		r.says("c1", r.birth, "i1", 0, counts(10, 5, 1))
		r.wants("a report", k, 10, 5, 1)
		r.says("c1", r.birth, "i1", 0, counts(10, 5, 1))
		r.wants("repeated", other, 10, 5, 1)
		r.says("c1", r.birth, "i1", 0, counts(12, 5, 1))
		r.says("c2", r.birth, "i1", 0, counts(0, 100, 0))
		r.wants("more, and another client", k, 12, 105, 1)
		r.says("c1", r.birth, "i2", time.Second, counts(1, 0, 0))
		r.wants("restarted", other, 13, 105, 1)
		r.says("c1", r.birth, "i2", time.Second, counts(0, 7, 0))
		r.wants("a counter went back", k, 13, 112, 1)
		r.says("c3", r.birth, "i3", time.Hour, counts(1<<40, 0, 0))
		r.wants("an old client that is not known", k, 13, 112, 1)
		r.says("c3", r.birth, "i3", time.Hour, counts(1<<40+1, 0, 0))
		r.wants("and what it counts later", k, 14, 112, 1)
		r.says("c1", "", "i2", time.Second, counts(3, 7, 0))
		r.wants("a client that closes", other, 17, 112, 1)
		read, err := r.Counted(waittest.Context(t), "vip")
		r.must(err)
		if len(read.Reports) != 2 {
			t.Errorf("%d reports are left; want 2, without that of the client that closed", len(read.Reports))
		}
	})
}

// A report on a chain counts once, by rule, also when its rules change.
func TestRulesAreCountedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	ctx := waittest.Context(t)
	_, err := r.PutChain(ctx, namelist.ChainPut{
		Chain: "vip", Document: `{"name":"vip","rules":[],"default":"allow"}`, By: namelist.By{Author: "test"},
	})
	r.must(err)
	k, other := New(r.Control, zap.NewNop(), nil), New(r.Control, zap.NewNop(), nil)
	for _, step := range []struct {
		what, client, text string
		want               map[string]count.Counts
	}{
		{"a report", "c1", "i1 (default)=5 testers=0,0,3", map[string]count.Counts{"(default)": {5}, "testers": {0, 0, 3}}},
		{"repeated", "c1", "i1 (default)=5 testers=0,0,3", map[string]count.Counts{"(default)": {5}, "testers": {0, 0, 3}}},
		{"another rule", "c1", "i1 (default)=6 few=1", map[string]count.Counts{"(default)": {6}, "testers": {0, 0, 3}, "few": {1}}},
		{"another client", "c2", "i2 few=0,1", map[string]count.Counts{"(default)": {6}, "testers": {0, 0, 3}, "few": {1, 1}}},
		{"an old client that is not known", "c3", "i3 (age_ms)=3600000 few=90", map[string]count.Counts{"(default)": {6}, "testers": {0, 0, 3}, "few": {1, 1}}},
		{"and later", "c3", "i3 (age_ms)=3600000 few=91,0,0,0,4", map[string]count.Counts{"(default)": {6}, "testers": {0, 0, 3}, "few": {2, 1, 0, 0, 4}}},
	} {
		mark := namelist.ChainMark("vip")
		_, err := r.Relay(ctx, owner, step.client, map[string]namelist.ClientReport{mark: {Birth: "b", Counts: step.text}})
		r.must(err)
		r.must(k.round(ctx, 0, 10))
		r.must(other.Add(ctx, mark))
		got, _, err := k.ChainSummary(ctx, "vip", time.Hour, time.Minute)
		r.must(err)
		if !maps.Equal(got.Applications, step.want) {
			t.Errorf("%s: %v; want %v", step.what, got.Applications, step.want)
		}
	}
}

// Of replicas that add up the same reports at the same time one succeeds.
func TestOneReplicaCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	var all sync.WaitGroup
	total := uint64(0)
	for i := range 10 {
		total += uint64(i)
		r.says("c", r.birth, "i", 0, counts(total, 0, 0))
		for range 4 {
			all.Go(func() {
				if err := New(r.Control, zap.NewNop(), nil).Add(waittest.Context(t), "vip"); err != nil {
					t.Errorf("adding up: %v; want no error", err)
				}
			})
		}
		all.Wait()
	}
	r.wants("ten times four replicas", New(r.Control, zap.NewNop(), nil), total, 0, 0)

	// A turn is one replica's, until it is due again.
	names := make(chan string, 100)
	for range 4 {
		all.Go(func() {
			lists, err := r.CountTurns(waittest.Context(t), time.Hour, 10)
			if err != nil {
				t.Error(err)
			}
			for _, list := range lists {
				names <- list
			}
		})
	}
	all.Wait()
	if len(names) != 1 || <-names != "vip" {
		t.Errorf("vip was given to %d replicas; want to one", len(names)+1)
	}
	r.must(New(r.Control, zap.NewNop(), nil).round(waittest.Context(t), 0, 10))
}

// Of more lists than are taken at a time, each has its turn, in one round.
func TestEachListHasItsTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	ctx := waittest.Context(t)
	want := []string{"vip"}
	for i := range 6 {
		want = append(want, fmt.Sprint("list-", i))
		_, err := r.Create(ctx, want[i+1], namelist.Spec{})
		r.must(err)
	}
	slices.Sort(want)
	var had []string
	for range 4 { // all are due each time
		lists, err := r.CountTurns(ctx, 0, 2)
		r.must(err)
		had = append(had, lists...)
	}
	slices.Sort(had)
	if had = slices.Compact(had); !slices.Equal(had, want) {
		t.Errorf("in four times two turns came %v; want %v", had, want)
	}

	other := newRig(t, redistest.Shared(t))
	for i := range 6 {
		_, err := other.Create(ctx, fmt.Sprint("list-", i), namelist.Spec{})
		other.must(err)
	}
	other.must(New(other.Control, zap.NewNop(), nil).round(ctx, time.Hour, 2))
	if left, err := other.CountTurns(ctx, time.Hour, 10); err != nil || len(left) > 0 {
		t.Errorf("after a round %v are due, %v; want none", left, err)
	}
}

// What is kept of readers is bounded in number and time.
func TestKnownReadersAreForgotten(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	ago := func(d time.Duration) string { return fmt.Sprintf("%d i1 redis_yes=5", at.Add(-d).UnixMilli()) }
	read := namelist.Counted{
		At:    at,
		Known: map[string]string{"a": ago(time.Second), "b": ago(2 * time.Minute), "c": ago(time.Hour), "d": "damaged"},
	}
	read.Reports = []namelist.CountedReport{
		{Reader: "b", Owner: "acme", Counts: "i1 redis_yes=5"}, {Reader: "e", Owner: "acme", Counts: "damaged ="},
	}
	by, w := sum(&read, decoder("vip"))
	if len(by) != 0 || len(w.Known) != 1 || w.Known["b"] != ago(0) || len(w.Forget) != 2 {
		t.Errorf("counted %v, keeps %v, forgets %v; want nothing, b's time anew, and c and d", by, w.Known, w.Forget)
	}
	for i := range manyKnown {
		read.Known[fmt.Sprint("n", i)] = ago(2 * time.Minute)
	}
	if _, w := sum(&read, decoder("vip")); len(w.Forget) != manyKnown+2 {
		t.Errorf("of too many it forgets %d; want %d", len(w.Forget), manyKnown+2)
	}
}

// The loop starts and stops, also when it was never started.
func TestKeeperStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	k := New(r.Control, zap.NewNop(), nil)
	r.must(k.Stop(context.Background()))
	r.must(k.Start(waittest.Context(t)))
	r.must(k.Stop(waittest.Context(t)))
}
