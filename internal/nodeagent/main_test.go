package nodeagent

import (
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

// What is tested has the rights of an agent in Redis.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleAgent, cell.Access) }
