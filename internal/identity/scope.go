package identity

import (
	"fmt"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/tokenfile"
)

// Scope is a kind of thing that a token can be restricted to some of.
type Scope string

// The scopes: name lists and chains to read, services of the registry to discover, documents to
// read.
const (
	Lists     Scope = "lists"
	Services  Scope = "services"
	Documents Scope = "documents"
)

// Scopes holds patterns of the names that a caller may read; nil: all names. In a pattern, * stands
// for any text.
type Scopes struct{ Lists, Services, Documents []string }

// scoped holds the calls that scopes restrict, with the part of the path that has the name.
// list-marks and report-lists, which have names in their bodies, call Reaches themselves.
var scoped = map[string]struct {
	scope Scope
	part  string
}{
	"list-changes":   {Lists, "list"},
	"get-block":      {Lists, "list"},
	"list-ids":       {Lists, "list"},
	"check-list":     {Lists, "list"},
	"get-chain":      {Lists, "chain"},
	"evaluate-chain": {Lists, "chain"},
	"discover":       {Services, "serviceName"},
	"read-document":  {Documents, "name"},
}

// ScopeOf returns the scope that restricts a call, and the part of its path that has the name. It
// returns an empty scope for other calls.
func ScopeOf(call string) (scope Scope, part string) {
	s := scoped[call]
	return s.scope, s.part
}

// Reaches returns permission_denied if the scope of the caller's token does not have this name.
func (p *Principal) Reaches(scope Scope, name string) error {
	patterns := map[Scope][]string{
		Lists: p.Scopes.Lists, Services: p.Scopes.Services, Documents: p.Scopes.Documents,
	}[scope]
	if patterns == nil || tokenfile.MatchesAny(patterns, name) {
		return nil
	}
	allowed := "none"
	if len(patterns) > 0 {
		allowed = strings.Join(patterns, ", ")
	}
	return &freeslot.Error{
		Code:    freeslot.CodePermissionDenied,
		Message: fmt.Sprintf("the token's %s do not include %.80q, it has %s", scope, name, allowed),
	}
}

// check finds patterns that are no names, and scopes of a role that has none.
func (s *Scopes) check(role Role) error {
	for _, one := range []struct {
		scope    Scope
		patterns []string
	}{{Lists, s.Lists}, {Services, s.Services}, {Documents, s.Documents}} {
		if one.patterns == nil {
			continue
		}
		if !role.Scoped() {
			return fmt.Errorf("%s is set for the role %s, expected it for client and tenant-operator alone", one.scope, role)
		}
		if err := tokenfile.CheckPatterns(string(one.scope), one.patterns, tokenfile.NamePattern); err != nil {
			return err
		}
	}
	return nil
}

// Scoped reports whether tokens of the role have scopes.
func (r Role) Scoped() bool { return r == Client || r == TenantOperator }
