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

// approvalSabotage takes an approval of an older digest.
func approvalSabotage() []edit {
	return []edit{{
		"namelist/script/lib/decision.lua",
		"  if verdict.digest ~= asked.digest or tonumber(revision) ~= (asked.revision or 0) then return 'conflict' end\n", "",
	}}
}

// TestChainSabotageApplies: the edits are of the sources as they are now, also where the runs are
// left out.
func TestChainSabotageApplies(t *testing.T) {
	t.Parallel()
	for _, s := range chainSabotages() {
		overlaid(t, s.edits, t.TempDir())
	}
	overlaid(t, approvalSabotage(), t.TempDir())
}

// TestApprovalSabotage builds the test of package namelist with a decision that takes an approval
// of an older digest, and expects that it finds it.
func TestApprovalSabotage(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	folder := sabotaged(t, approvalSabotage(), func(ctx context.Context, root, folder string, args ...string) error {
		return buildTest(ctx, root, folder, "namelist", args...)
	})
	out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "namelist"), "-test.run", "^TestDecision$").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the digest of before") {
		t.Fatalf("%v: %s; want an outdated request that was approved", err, out)
	}
}

// buildTest builds the test of a folder below internal.
func buildTest(ctx context.Context, root, folder, of string, args ...string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	args = append([]string{"test", "-c", "-buildvcs=false", "-o", filepath.Join(folder, filepath.Base(of))}, args...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./internal/"+of)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	return cmd.Run()
}

// TestChainSabotage builds the test of package oracle with chains that do not hold what they
// promise, and expects that it finds wrong decisions.
func TestChainSabotage(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	for _, s := range chainSabotages() {
		t.Run(s.name, func(t *testing.T) {
			folder := sabotaged(t, s.edits, func(ctx context.Context, root, folder string, args ...string) error {
				return buildTest(ctx, root, folder, "namelist/oracle", args...)
			})
			out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "oracle"), "-test.run", "^TestChainOracle$").CombinedOutput()
			if err == nil || !strings.Contains(string(out), " of version ") {
				t.Fatalf("%v: %s; want wrong decisions", err, out)
			}
		})
	}
}
