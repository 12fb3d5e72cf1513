package faults

import (
	"testing"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/registry"
)

// TestRegistryRestart kills all providers at once, which have 1,000 instances of a service and 400
// of another one, and starts them again: at once, and then when cleanup finds all of them silent
// for too long.
func TestRegistryRestart(t *testing.T) {
	t.Parallel()
	const times = 200
	b := registryRun{times: times}.start(t)
	b.awaitAll()
	before, from := b.epochs(), Clock()-b.begin
	var plan []Breakage
	for _, name := range registryProviders {
		plan = append(plan, Breakage{Target: name, Action: Kill}, Breakage{
			At: registryTimes.noticed() + registryTimes.Slack, Target: name, Action: Kill, For: registryTimes.Limit + registryTimes.Slack,
		})
	}
	b.run(t.Context(), plan)
	b.awaitUp(startLimit)
	h, unrest := b.awaitRest(registryRest)
	after := b.epochs()
	if len(after) != 5*times {
		t.Errorf("%d instances are back, expected %d", len(after), 5*times)
	}
	for id, epoch := range after {
		if epoch == before[id] {
			t.Errorf("%s has the epoch of the process that was killed", id)
		}
	}
	if empty := h.saw("", from, func(l *SeenList) bool { return len(l.Instances) == 0 }); empty != nil {
		t.Errorf("a list was empty: %+v", empty)
	}
	h.judge(t, unrest)
}

// epochs are those of the instances of the service web, by id.
func (b *registryBreaker) epochs() map[string]string {
	b.t.Helper()
	out := map[string]string{}
	b.withStore(func(store *registry.Store) error {
		for cursor := "0"; ; {
			page, next, _, err := store.Instances(b.t.Context(), "web", cursor)
			if err != nil {
				return err
			}
			for i := range page {
				out[page[i].ID] = page[i].Epoch
			}
			if cursor = next; cursor == "0" {
				return nil
			}
		}
	})
	return out
}

// withStore has do work with the registry as operators see it.
func (b *registryBreaker) withStore(do func(*registry.Store) error) {
	b.t.Helper()
	client, err := b.client()
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	cluster := b.cfg.store != nil && b.cfg.store.cluster
	if err := do(registry.NewStore(client, registry.DefaultKeyPrefix, cluster, zap.NewNop())); err != nil {
		b.t.Fatal(err)
	}
}
