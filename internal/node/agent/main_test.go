package agent

import (
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/redis/redistest/acltest"
	"github.com/freeslot/freeslot/internal/script"
)

// What is tested has the rights of an agent in Redis.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleAgent, cell.Access) }
