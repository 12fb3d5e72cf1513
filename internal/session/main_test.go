package session

import (
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

// The tests run with the rights of a replica in Redis.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, cell.Access, presence.Access) }
