package operator

import (
	"testing"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/build"
	"github.com/freeslot/freeslot/internal/redis/redistest/acltest"
	"github.com/freeslot/freeslot/internal/script"
)

// TestMain runs the tests with the rights of a replica.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, namelist.Access, build.Access) }
