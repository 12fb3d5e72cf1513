package faults

import (
	"os"
	"slices"
	"testing"
	"time"
)

// registrySabotageRest is how long a run that cannot come to rest is waited for.
const registrySabotageRest = 3 * time.Second

// registrySabotage is a way in which the registry does not hold what it promises.
type registrySabotage struct {
	name  string
	edits []edit
	plan  []Breakage
	loses bool
	rule  string
}

func registrySabotages() []registrySabotage {
	return []registrySabotage{
		{
			name: "a heartbeat resurrects what is unknown", loses: true, rule: "content",
			plan: []Breakage{{At: 2 * time.Second, Target: dataTarget, Action: Flush}},
			edits: []edit{{
				"registry/script/heartbeat.lua", "    reply[n] = 4\n",
				"    reply[n] = 1\n    beats[#beats + 1] = at\n    beats[#beats + 1] = ids[n]\n",
			}},
		},
		{
			name: "the guard is ignored", rule: "guard",
			plan: []Breakage{{At: 2 * time.Second, Target: "p1", Action: Kill, For: 5 * time.Second}},
			edits: []edit{{
				"registry/script/cleanup.lua", "return count > 1 and count * 100 > 30 * size end", "return false end",
			}},
		},
		{
			name: "epochs are not compared", rule: "two holders",
			plan: []Breakage{{At: 2 * time.Second, Target: "p1", Action: Twin, For: time.Second}},
			edits: []edit{
				{"registry/script/heartbeat.lua", "elseif held[1] ~= ARGV[item + 1] then", "elseif false then"},
				{"registry/script/register.lua", "old[1] ~= item.epoch then", "false then"},
			},
		},
	}
}

// TestRegistrySabotageApplies: the edits are of the sources as they are now, also where the runs
// are left out.
func TestRegistrySabotageApplies(t *testing.T) {
	t.Parallel()
	for _, s := range registrySabotages() {
		overlaid(t, s.edits, t.TempDir())
	}
}

// TestRegistrySabotage builds the programs with a registry that does not hold what it promises, and
// expects that a run finds out.
func TestRegistrySabotage(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	t.Parallel()
	for _, s := range registrySabotages() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := registryRun{seed: 1, plan: s.plan, loses: s.loses, programs: sabotaged(t, s.edits, buildPeers), rest: registrySabotageRest}
			h, _ := r.do(t)
			found, judged := CheckRegistry(h)
			t.Log(h.summary(judged))
			i := slices.IndexFunc(found, func(v Violation) bool { return v.Rule == s.rule })
			if i < 0 {
				t.Fatalf("found %v, expected %s", found, s.rule)
			}
			t.Logf("found %d, such as: %s", len(found), found[i])
		})
	}
}
