package api

import (
	"context"

	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/identity"
)

// Principal is a caller of one route.
type Principal struct {
	identity.Principal
	// AllTenants is true if the caller may see or change by this route what belongs to any tenant.
	AllTenants bool
}

// scope returns the tenant whose jobs p may read or change; empty means any tenant.
func (p *Principal) scope() string {
	if p.AllTenants {
		return ""
	}
	return p.Tenant
}

// Author returns who makes a change, for its history, and gives note to the audit as the reason.
// That is the name of the caller's token. A token without a name gives its tenant, followed by what
// the caller says of itself, if it does.
func Author(ctx context.Context, stated, note string) string {
	audit.Of(ctx).Because(note)
	switch p := Caller(ctx); {
	case p.Name != "":
		return p.Name
	case stated != "":
		return p.Tenant + "/" + stated
	default:
		return p.Tenant
	}
}

type principalKey struct{}

// Caller returns the caller of the request that ctx belongs to. It panics outside of an
// authenticated route: to continue would skip authorization.
func Caller(ctx context.Context) *Principal { return ctx.Value(principalKey{}).(*Principal) }
