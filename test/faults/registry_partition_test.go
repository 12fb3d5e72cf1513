package faults

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"testing"
	"time"
)

// partition is how long TestRegistryPartition cuts off, twice: 15 limits of cleanup. With SHORT=1
// it is two and a half: twice 30 s would take all of the minute that CI has for the registry.
func partition() time.Duration {
	if os.Getenv("SHORT") == "1" {
		return registryTimes.Limit * 5 / 2
	}
	return 30 * time.Second
}

// TestRegistryPartition cuts a provider and a consumer off Redis for long: the provider's instances
// are removed, and come back, and the consumer keeps its list. Then it cuts all off, and no
// instance may be removed.
func TestRegistryPartition(t *testing.T) {
	t.Parallel()
	b := registryRun{}.start(t)
	b.awaitAll()
	b.awaitLimits()
	from := Clock() - b.begin
	cut := func(names ...string) {
		var plan []Breakage
		for _, name := range names {
			plan = append(plan, Breakage{Target: wayPrefix + name, Action: Hole, For: partition()})
		}
		b.run(t.Context(), plan)
		b.awaitAll()
	}
	cut("p3", "c1")
	all := Clock() - b.begin
	cut(slices.Collect(maps.Keys(b.programs))...)

	h, unrest := b.awaitRest(registryRest)
	if h.saw("c2", from, func(l *SeenList) bool { return l.State == "live" && len(l.Instances) == 4 }) == nil {
		t.Error("no instance of the provider that was cut off was removed")
	}
	for _, name := range registryConsumers {
		if h.saw(name, all, func(l *SeenList) bool { return l.State == "stale" }) == nil {
			t.Errorf("the list of %s was never stale", name)
		}
	}
	if few := cmp.Or(
		h.saw("c1", from, func(l *SeenList) bool { return l.State == "stale" && len(l.Instances) < 5 }),
		h.saw("", all, func(l *SeenList) bool { return len(l.Instances) < 5 }),
	); few != nil {
		t.Errorf("a list has become %+v by the partition", few)
	}
	h.judge(t, unrest)
}

// saw is a list of the service web that a program had since a moment; nil if it never had such a
// list. An empty name is any program.
func (h *RegistryHistory) saw(peer string, since time.Duration, is func(*SeenList) bool) *SeenList {
	for _, l := range h.lives() {
		for _, s := range l.seen("web") {
			if (peer == "" || peer == l.peer) && s.to > since && s.SeenList != nil && is(s.SeenList) {
				return s.SeenList
			}
		}
	}
	return nil
}
