// Package acltest runs a package's tests with the rights of a role in Redis.
//
//	func TestMain(m *testing.M) { acltest.Main(m, cell.RoleAgent) }
package acltest

import (
	"fmt"
	"os"
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/redis/redistest"
	"github.com/freeslot/freeslot/internal/script"
)

// Main is redistest.MainAs for a role, under any key prefix, of any node, in any cell. features are the scripts of the
// features that a replica has under test.
func Main(m *testing.M, role cell.Role, features ...script.Set) {
	access, err := cell.AccessOf(role, cell.AnyNode, features,
		cell.Layout{Prefix: "*"}, cell.Layout{Prefix: "*", Tag: "*"}, cell.Layout{Prefix: "*", Tag: "*", Sharded: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	redistest.MainAs(m, redistest.Role{Name: string(role), Rules: access.Rules(), Scripts: cell.Scripts().Texts()})
}
