package oracle

import (
	"testing"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

// Clients have the rights in Redis that `schedctl acl --role list-reader` gives.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleListReader, lists.Access, version.Access) }
