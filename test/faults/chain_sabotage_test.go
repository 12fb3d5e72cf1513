package faults

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// chainSabotage is a way in which chains do not hold what they promise.
type chainSabotage struct {
	name  string
	edits []edit
}

func chainSabotages() []chainSabotage {
	return []chainSabotage{
		{
			name: "unknown is taken for no",
			edits: []edit{{
				"namelist/chain/chain.go", "		*doubt = Doubt{Rule: r.name, List: c.lists[r.list], Why: m.Why}\n",
				"		*doubt = Doubt{Rule: r.name, List: c.lists[r.list], Why: m.Why}\n		return False\n",
			}},
		},
		{
			name: "a percentage is not sticky",
			edits: []edit{{
				"namelist/chain/chain.go", "return truth(Bucket(r.salt, text) < r.below)",
				"return truth((Bucket(r.salt, text)+37*int(c.version))%Buckets < r.below)",
			}},
		},
	}
}

// TestChainSabotageApplies: the edits are of the sources as they are now, also where the runs are left
// out.
func TestChainSabotageApplies(t *testing.T) {
	t.Parallel()
	for _, s := range chainSabotages() {
		overlaid(t, s.edits, t.TempDir())
	}
}

// TestChainSabotage builds the test of package oracle with chains that do not hold what they promise,
// and expects that it finds wrong decisions.
func TestChainSabotage(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	for _, s := range chainSabotages() {
		t.Run(s.name, func(t *testing.T) {
			folder := sabotaged(t, s.edits, func(ctx context.Context, root, folder string, args ...string) error {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					return err
				}
				args = append([]string{"test", "-c", "-buildvcs=false", "-o", filepath.Join(folder, "oracle")}, args...)
				cmd := exec.CommandContext(ctx, "go", append(args, "./internal/namelist/oracle")...)
				cmd.Dir, cmd.Stderr = root, os.Stderr
				return cmd.Run()
			})
			out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "oracle"), "-test.run", "^TestChainOracle$").CombinedOutput()
			if err == nil || !strings.Contains(string(out), " of version ") {
				t.Fatalf("%v: %s; want wrong decisions", err, out)
			}
		})
	}
}
