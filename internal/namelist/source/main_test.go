package source

import (
	"testing"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestMain runs the tests with the rights of a replica.
func TestMain(m *testing.M) {
	scripttest.Guard(scripts)
	acltest.Main(m, script.RoleReplica, namelist.Access, version.Access, Access)
}
