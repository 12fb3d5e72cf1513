package namelist

import (
	"testing"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestMain runs the tests with the rights of a replica.
func TestMain(m *testing.M) {
	scripttest.Guard(scripts)
	acltest.Main(m, script.RoleReplica, Access)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, files)
}

// TestAccess: what a replica may do, it does.
func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}
