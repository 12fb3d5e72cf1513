package server

import (
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/namelist"
)

// TestMayCall: a grant is for an operator's token of that name, or for a tenant-operator's of that
// tenant and name: tenants choose the names of their tokens.
func TestMayCall(t *testing.T) {
	t.Parallel()
	h := &namelist.Head{Name: "vip", Grants: map[string][]namelist.May{
		"olga": {namelist.MayQuery}, "acme/otto": {namelist.MayQuery},
	}}
	for _, c := range []struct {
		name, tenant string
		role         identity.Role
		want         freeslot.Code
	}{
		{"olga", "ops", identity.Operator, ""},
		{"otto", "acme", identity.Operator, freeslot.CodePermissionDenied},
		{"acme/otto", "ops", identity.Operator, freeslot.CodePermissionDenied}, // a signed token's name
		{"olga", "evil", identity.TenantOperator, freeslot.CodeNotFound},
		{"otto", "evil", identity.TenantOperator, freeslot.CodeNotFound},
		{"otto", "acme", identity.TenantOperator, ""},
		{"", "acme", identity.TenantOperator, freeslot.CodeNotFound},
		{"root", "ops", identity.Admin, ""},
	} {
		who := &identity.Principal{Name: c.name, Tenant: c.tenant, Role: c.role}
		if err := mayCall(who, "query-list", h); freeslot.CodeOf(err) != c.want {
			t.Errorf("%s %q of %s: %v; want code %q", c.role, c.name, c.tenant, err, c.want)
		}
	}
}
