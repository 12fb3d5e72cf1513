package faults

import (
	"os"
	"slices"
	"testing"
	"time"
)

// lockSabotageLength is how long things break.
const lockSabotageLength = 6 * time.Second

// lockSabotage is a way in which the lock does not hold what it promises.
type lockSabotage struct {
	name  string
	edits []edit
	weak  map[string]weakness
	loses bool
	rule  string
}

func lockSabotages() []lockSabotage {
	holes := map[string]weakness{}
	for i := range lockHolders {
		holes[wayPrefix+holderName(i)] = weakness{time.Second, []Action{Hole}, time.Second, 2 * time.Second}
	}
	return []lockSabotage{
		{
			name: "the end is moved by a renewal that nothing has confirmed", weak: holes, rule: "two holders",
			edits: []edit{{
				"lock/renew.go", "	answers, err := g.renew(ctx, items, false)\n",
				"	for _, a := range items {\n		a.extend(a.confirmed(uptime()))\n	}\n	answers, err := g.renew(ctx, items, false)\n",
			}},
		},
		{
			name: "a process gives back what another of its workers holds", weak: holes, rule: "two holders",
			edits: []edit{{
				"lock/script/release.lua", "held.acquisition == process .. ':' .. number then", "string.match(held.acquisition, '^%w+') == process then",
			}},
		},
		{
			name: "tokens know no clock", loses: true, rule: "tokens",
			weak: map[string]weakness{locksTarget: {time.Second, []Action{Flush}, 0, 0}},
			edits: []edit{{
				"lock/script/lib/token.lua", "math.max(counter + 1, now_us)", "counter + 1",
			}},
		},
	}
}

// TestLockSabotageApplies: the edits are of the sources as they are now, also where the runs are
// left out.
func TestLockSabotageApplies(t *testing.T) {
	t.Parallel()
	for _, s := range lockSabotages() {
		overlaid(t, s.edits, t.TempDir())
	}
}

// TestLockSabotage builds the holder with a lock that does not hold what it promises, and expects
// that a run finds out.
func TestLockSabotage(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	for _, s := range lockSabotages() {
		t.Run(s.name, func(t *testing.T) {
			r := lockRun{seed: 1, plan: planOf(1, lockSabotageLength, s.weak), loses: s.loses, programs: sabotaged(t, s.edits, buildPeers)}
			ops := r.do(t)
			found := r.check(ops)
			t.Log(lockSummary(ops))
			i := slices.IndexFunc(found, func(v Violation) bool { return v.Rule == s.rule })
			if i < 0 {
				t.Fatalf("found %v, expected %s", found, s.rule)
			}
			t.Logf("found %d, such as: %s", len(found), found[i])
		})
	}
}
