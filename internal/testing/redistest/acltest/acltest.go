// Package acltest runs a package's tests with the rights of a role in Redis.
//
//	func TestMain(m *testing.M) { acltest.Main(m, script.RoleAgent, cell.Access) }
package acltest

import (
	"fmt"
	"os"
	"testing"

	"github.com/freeslot/freeslot/internal/redis/acl"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// Main is redistest.MainAs for a role with the rights of these features, under any key prefix, for
// any node, in any cell.
func Main(m *testing.M, role script.Role, features ...script.Access) {
	rights, err := acl.Of(
		role, script.AnyNode, []script.Layout{{Prefix: "*"}, {Prefix: "*", Tag: "*"}, {Prefix: "*", Tag: "*", Sharded: true}},
		features...,
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	as := redistest.Role{Name: string(role), Rules: rights.Rules()}
	if role == script.RoleAgent { // which may not load any
		for _, f := range features {
			as.Scripts = append(as.Scripts, f.Scripts.Texts()...)
		}
	}
	redistest.MainAs(m, as)
}
