// Package acltest runs a package's tests with the rights of a role in Redis.
//
//	func TestMain(m *testing.M) { acltest.Main(m, cell.RoleAgent) }
package acltest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/redis/redistest"
	"github.com/freeslot/freeslot/internal/script"
)

// Main is redistest.MainAs for a role, under any key prefix, of any node, in any cell.
func Main(m *testing.M, role cell.Role, options ...goleak.Option) {
	access, err := cell.AccessOf(role, cell.AnyNode,
		cell.Layout{Prefix: "*"}, cell.Layout{Prefix: "*", Tag: "*"}, cell.Layout{Prefix: "*", Tag: "*", Sharded: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	switch role { // as schedctl acl gives it
	case cell.RoleReplica:
		access = script.Join(access, lock.AdminAccess("*"))
	case cell.RoleOperator:
		access = script.Join(access, lock.Access("*"))
	}
	redistest.MainAs(m, redistest.Role{Name: string(role), Rules: access.Rules(), Scripts: cell.Scripts().Texts()}, options...)
}
