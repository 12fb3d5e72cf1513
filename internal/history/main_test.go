package history

import (
	"testing"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, Access) }
