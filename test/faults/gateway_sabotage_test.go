package faults

import (
	"os"
	"slices"
	"testing"
)

// gatewayBug is a bug of gateways, or of what Redis lets them do, that the probe must find. No load is
// sure to: a late frame needs a gateway that thaws at the right moment.
type gatewayBug struct {
	probe string
	edits []edit
}

func gatewayBugs() []gatewayBug {
	return []gatewayBug{
		{
			// A heartbeat of a former connection is taken.
			"late heartbeat", []edit{{
				"cell/script/node/heartbeats.lua",
				"  elseif before and tonumber(before) > tonumber(connection) then\n    answers[n + 1] = -3\n", "",
			}},
		},
		{
			// A registration of a former connection is taken.
			"late register", []edit{{
				"cell/script/node/register.lua",
				"  if not taken and last and tonumber(last) > tonumber(connection) then return {-3} end\n", "",
			}},
		},
		{
			// The node is registered that the frame names.
			"foreign node", []edit{{
				"gateway/request.go",
				"	profile.ID = s.node // whatever the agent says\n", "	if profile.ID == \"\" {\n		profile.ID = s.node\n	}\n",
			}},
		},
		{
			// A node reads the jobs of others.
			"foreign spec", []edit{{"cell/script/job/owned_spec.lua", "if owner ~= epoch then return {} end\n", ""}},
		},
		{
			// A call for several nodes drops the ends behind a stale one.
			"ends of nodes", []edit{{
				"cell/script/job/complete_nodes.lua",
				"  if plain then taken[#taken + 1] =", "  if plain and codes[#codes] ~= -1 then taken[#taken + 1] =",
			}},
		},
		{
			// A call for one node drops the ends behind one that cannot be sent.
			"ends of a node", []edit{{
				"cell/job_complete_nodes.go",
				"if results[i].Err = comps[i].validate(); results[i].Err == nil {\n",
				"if results[i].Err = comps[i].validate(); results[i].Err != nil {\n			break\n		} else {\n",
			}},
		},
	}
}

// TestGatewaySabotage builds replicas with these bugs, and expects that the probes find them.
func TestGatewaySabotage(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	for _, bug := range gatewayBugs() {
		t.Run(bug.probe, func(t *testing.T) {
			all := probes()
			i := slices.IndexFunc(all, func(p probe) bool { return p.name == bug.probe })
			found := all[i].run(t, newProbed(t, sabotaged(t, bug.edits, buildScheduler)))
			if len(found) == 0 {
				t.Fatal("nothing was found")
			}
			t.Logf("found %d, such as: %s", len(found), found[0])
		})
	}
}
