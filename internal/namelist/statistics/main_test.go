package statistics

import (
	"testing"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

// TestMain runs the tests with the rights of a replica.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, namelist.Access) }
