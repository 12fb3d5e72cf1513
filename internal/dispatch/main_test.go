package dispatch

import (
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch/presence"
	"github.com/freeslot/freeslot/internal/redis/redistest/acltest"
	"github.com/freeslot/freeslot/internal/script"
)

// The tests run with the rights of a replica in Redis.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, cell.Access, presence.Access) }
