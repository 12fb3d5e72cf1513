package agent

import (
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/redis/redistest/acltest"
)

// What is tested has the rights of an agent in Redis.
func TestMain(m *testing.M) { acltest.Main(m, cell.RoleAgent) }
