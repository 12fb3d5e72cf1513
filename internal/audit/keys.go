package audit

import (
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/script"
)

// shelf holds the names of the keys of one half of the audit.
type shelf struct {
	// ended is a stream of the changes that have ended, in the field "entry": a JSON object.
	ended string
	// open is a hash of the changes under way: id -> begin in ms, entry.
	open string
}

// keys holds the names of all keys of this package. They are in the first cell of a system.
type keys struct {
	// operators holds the changes by everyone whom no tenant limits, tenants the changes that
	// clients and tenant-operators make of their own things. They are apart so that a tenant cannot
	// push out an operator's entries.
	operators, tenants shelf
}

func keysOf(l script.Layout) keys {
	return keys{
		operators: shelf{ended: l.Key("audit:changes", ""), open: l.Key("audit:open", "")},
		tenants:   shelf{ended: l.Key("audit:own", ""), open: l.Key("audit:own-open", "")},
	}
}

// of returns the half that keeps the changes of a role.
func (k *keys) of(role identity.Role) shelf {
	if role == identity.Client || role == identity.TenantOperator {
		return k.tenants
	}
	return k.operators
}
