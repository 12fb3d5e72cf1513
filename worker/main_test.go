package worker

import (
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/redis/redistest/acltest"
)

// The workers under test have the rights of an agent in Redis.
func TestMain(m *testing.M) { acltest.Main(m, cell.RoleAgent) }
