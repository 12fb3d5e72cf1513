package registry

import (
	"testing"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestMain runs the tests with the rights of a replica; those of a provider are tested apart.
func TestMain(m *testing.M) {
	scripttest.Guard(scripts)
	acltest.Main(m, script.RoleReplica, Access)
}
