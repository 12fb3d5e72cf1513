package faults

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"
)

// listSabotageLength is for how long things break, at least. Whether a holder that wakes finishes
// before others have removed what it wrote is a matter of luck, so it is tried for longer.
const listSabotageLength, leaseSabotageLength = 10 * time.Second, 80 * time.Second

// listSabotage is a way in which name lists do not hold what they promise.
type listSabotage struct {
	name     string
	edits    []edit
	topology string
	faults   []string
	length   time.Duration
	rule     string
}

func listSabotages() []listSabotage {
	return []listSabotage{
		{
			name: "edits are not asked", topology: listsSeveral, length: listSabotageLength, rule: "answer",
			edits: []edit{{"../namelist/snapshot.go", "p.version.Base); edited {", "p.version.Base); edited && id == \"\" {"}},
		},
		{
			name: "the seal is not read", topology: listsSeveral, faults: []string{FaultFlushServer}, length: listSabotageLength, rule: "answer",
			edits: []edit{{"namelist/segment.go", "	if why != \"\" || values[1].IsNil() {\n		return ListFound{Why: why}", "	_ = why\n	if values[1].IsNil() {\n		return ListFound{}"}},
		},
		{
			name: "the filter is of another version", topology: listsSeveral, length: listSabotageLength, rule: "answer",
			edits: []edit{{
				"../namelist/snapshot.go", "p.blocks, p.keys, p.whole = l.blocks, l.keys, l.whole\n",
				"p.blocks, p.keys, p.whole = l.blocks, l.keys, l.whole\n		if old := first[v.list]; old == nil {\n			if l.have == len(l.blocks) {\n				first[v.list] = l.blocks\n			}\n		} else if len(old) == len(l.blocks) {\n			p.blocks = old\n		}\n",
			}, {"../namelist/loaded.go", "// loaded is what", "var first = map[string][]*filter.Block{}\n\n// loaded is what"}},
		},
		{
			name: "the lease is not checked", topology: listsSeveral, faults: []string{FaultFreezeHolder}, length: leaseSabotageLength, rule: "lease",
			edits: []edit{{
				"namelist/operation.go",
				"		case h.Op.ID != op.ID || op.ID == \"\" || h.Op.Holder != op.Holder:\n" +
					"			return nil, h.conflict(what + \" of operation \" + op.ID + \", which is over or has another holder,\")\n		}\n",
				"		}\n		h.Op = op\n",
			}},
		},
	}
}

// TestListsSabotageApplies: the edits are of the sources as they are now, also where the runs are
// left out.
func TestListsSabotageApplies(t *testing.T) {
	t.Parallel()
	for _, s := range listSabotages() {
		overlaid(t, s.edits, t.TempDir())
	}
}

// TestListsSabotage builds the programs with lists that do not hold what they promise, and expects
// that a run finds out.
func TestListsSabotage(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	for _, s := range listSabotages() {
		t.Run(s.name, func(t *testing.T) {
			build := func(ctx context.Context, root, folder string, args ...string) error {
				return errors.Join(build(ctx, root, folder, args...), buildPeers(ctx, root, folder, args...))
			}
			r := listsRun{seed: 1, length: s.length, topology: s.topology, members: listMembers / 4, faults: s.faults, built: sabotaged(t, s.edits, build)}
			found := r.do(t)
			i := slices.IndexFunc(found, func(v Violation) bool { return v.Rule == s.rule })
			if i < 0 {
				t.Fatalf("found %v, expected %s", found, s.rule)
			}
			t.Logf("found %d, such as: %s", len(found), found[i])
		})
	}
}
