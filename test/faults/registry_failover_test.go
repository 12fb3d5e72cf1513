package faults

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/freeslot/freeslot/internal/registry"
	redisscript "github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestRegistrySentinelFailover kills the master that sentinels watch, and has it lose registrations:
// of p1 its replica has an earlier process, and of the others nothing. p3 dies with the master, so
// that no heartbeat says that it is lost.
func TestRegistrySentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinels(t)
	b := registryRun{store: &store{url: s.URL()}, loses: true}.start(t)
	b.awaitAll()
	ctx, p1, p2, p3 := t.Context(), b.programs["p1"], b.programs["p2"], b.programs["p3"]
	b.broken(redisTarget, FailOver, func() {
		b.broken(p2.name, Stop, p2.stop)
		b.broken(p3.name, Stop, p3.stop)
		cut := b.detour(ctx, s)
		b.broken(p1.name, Kill, p1.kill)
		for _, p := range []*program{p1, p2, p3} {
			p.start()
			b.must(redistest.Await(func(ctx context.Context) bool {
				life := lifeAt(ctx, s.Master, p.name)
				return life != "" && life != lifeAt(ctx, s.Replica, p.name)
			}))
		}
		b.awaitAll()
		s.Master.Kill()
		b.broken(p3.name, Kill, p3.kill)
		cut()
		b.promoted(ctx, s.Replica.Process())
	})
	pause(ctx, registryTimes.Timeout+2*registryTimes.Look+2*registryTimes.Slack)
	p3.start()
	b.awaitUp(startLimit)
	h, unrest := b.awaitRest(registryRest)
	h.judge(t, unrest)
}

// lifeAt is the process that provides the first instance of a program, as a server has it.
func lifeAt(ctx context.Context, server *redistest.Server, provider string) string {
	life, _ := ask(ctx, server.Process(), "HGET", registry.DefaultKeyPrefix+":registry:services:web:"+provider+"-0", "metadata_life").ToString()
	return life
}

// TestRegistrySlotMigration moves the hash slot of a service from master to master. The last time it
// stops half way, when all but the record of one instance is moved. That instance dies, and cleanup
// must not do half of its work.
func TestRegistrySlotMigration(t *testing.T) {
	t.Parallel()
	c := redistest.NewReplicaCluster(t)
	b := registryRun{store: &store{url: c.URL(), cluster: true}}.start(t)
	b.awaitAll()
	from := Clock() - b.begin
	const tags = 16 // of a registry on a cluster
	layout := redisscript.Layouts(registry.DefaultKeyPrefix, tags, true)[redisscript.CellOf("web", tags)]
	number, _ := layout.Slot()
	slot, masters := uint16(number), c.Processes()[:3]
	home := slices.Index(masters, c.Owner(slot))
	for i := range 3 {
		c.MigrateSlot(slot, masters[(home+1+i)%3])
		pause(t.Context(), registryTimes.Look)
	}

	// While a slot moves, a call works only if all of its keys exist, and cleanup has the overrides.
	b.withStore(func(store *registry.Store) error {
		_, err := store.SetOverride(t.Context(), "web", "p1-0", &registry.Override{Author: "test"}, 0, nil)
		return err
	})
	keys, err := ask(t.Context(), masters[home], "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(number), "100").AsStrSlice()
	b.must(err)
	last := slices.Index(keys, layout.Key("registry:services", "web:p3-0"))
	to, p3 := masters[(home+1)%3], b.programs["p3"]
	c.BeginMigration(slot, to, slices.Delete(keys, last, last+1)...)
	pause(t.Context(), registryTimes.Timeout)
	b.broken(p3.name, Kill, func() {
		p3.kill()
		pause(t.Context(), registryTimes.Limit+registryTimes.Slack)
		b.withStore(func(store *registry.Store) error {
			found, err := store.Summary(t.Context(), "web")
			if found.Instances != 5 {
				t.Errorf("redis has the heartbeats of %d instances, expected 5", found.Instances)
			}
			return err
		})
		if few := b.history().saw("", from, func(l *SeenList) bool { return len(l.Instances) < 5 }); few != nil {
			t.Errorf("a list has become %+v, although no instance was removed", few)
		}
		c.MigrateSlot(slot, to)
		p3.start()
	})
	b.awaitUp(startLimit)
	h, unrest := b.awaitRest(registryRest)
	h.judge(t, unrest)
}
