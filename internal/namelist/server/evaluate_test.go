package server

import (
	"testing"

	"github.com/freeslot/freeslot"
)

// TestEvaluations: a tenant has a part of the places, so that others find some, and a place that is
// left can be taken again.
func TestEvaluations(t *testing.T) {
	t.Parallel()
	var e evaluations
	var leaves []func()
	take := func(tenant string, want freeslot.Code) {
		t.Helper()
		leave, err := e.enter(tenant)
		if freeslot.CodeOf(err) != want {
			t.Errorf("a place for %s: %v; want code %q", tenant, err, want)
		}
		if err == nil {
			leaves = append(leaves, leave)
		}
	}
	for range tenantEvaluations {
		take("greedy", "")
	}
	take("greedy", freeslot.CodeOverloaded)
	for _, tenant := range []string{"a", "b", "c"} {
		for range tenantEvaluations {
			take(tenant, "")
		}
	}
	take("d", freeslot.CodeOverloaded) // the replica is full
	leaves[0]()
	leaves = leaves[1:]
	take("d", "")
	for _, leave := range leaves {
		leave()
	}
	if e.all != 0 || len(e.by) != 0 {
		t.Errorf("%d places and tenants %v are left; want none", e.all, e.by)
	}
}
