package doctor

import (
	"maps"
	"slices"
	"testing"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestAccess: a doctor may call what the code calls, and nothing else.
func TestAccess(t *testing.T) {
	t.Parallel()
	called, may := slices.Sorted(maps.Keys(scripttest.BuiltCommands(t, "."))), Access.Roles[script.RoleDoctor].Commands
	if !slices.Equal(called, may) {
		t.Errorf("a doctor calls %v; want %v", called, may)
	}
}
