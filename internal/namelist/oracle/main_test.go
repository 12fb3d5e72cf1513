package oracle

import (
	"testing"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/build"
	"github.com/freeslot/freeslot/internal/redis/redistest/acltest"
	"github.com/freeslot/freeslot/internal/script"
)

// Clients have the rights in Redis that `schedctl acl --role list-reader` gives.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleListReader, lists.Access, build.Access) }
