package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
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

// Credential is a token and the caller that it identifies.
type Credential struct {
	Token string
	identity.Principal
}

// Authenticator identifies callers by static bearer tokens. It is immutable and safe for concurrent
// use.
type Authenticator struct {
	open   identity.Principal
	tokens []hashedCredential
}

type hashedCredential struct {
	digest    [sha256.Size]byte
	principal identity.Principal
}

// NewAuthenticator makes an authenticator for the given tokens. Without tokens every caller is an
// admin of openTenant. With operatorsAreAdmins so is every operator, unless there is an admin's
// token.
func NewAuthenticator(credentials []Credential, openTenant string, operatorsAreAdmins bool) *Authenticator {
	a := &Authenticator{open: identity.Principal{Tenant: openTenant, Role: identity.Admin}}
	if slices.ContainsFunc(credentials, func(c Credential) bool { return c.Role == identity.Admin }) {
		operatorsAreAdmins = false
	}
	for _, c := range credentials {
		if c.Role == identity.Operator && operatorsAreAdmins {
			c.Role = identity.Admin
		}
		a.tokens = append(a.tokens, hashedCredential{digest: sha256.Sum256([]byte(c.Token)), principal: c.Principal})
	}
	return a
}

// Open reports whether there are no tokens, so that every caller is accepted.
func (a *Authenticator) Open() bool { return len(a.tokens) == 0 }

// Authenticate returns the caller that sent r. The token is in the Authorization header. In the
// handshake of a WebSocket, where browsers cannot set headers, it may be in the query parameter
// access_token. The error is a *freeslot.Error with code unauthenticated.
func (a *Authenticator) Authenticate(r *http.Request) (identity.Principal, error) {
	if a.Open() {
		return a.open, nil
	}
	token, ok := bearerToken(r)
	if !ok {
		return identity.Principal{}, &freeslot.Error{
			Code:    freeslot.CodeUnauthenticated,
			Message: `no token, expected the header "Authorization: Bearer <token>"`,
		}
	}
	// All digests are compared in constant time, so that the duration does not show how much of a
	// token was right.
	digest := sha256.Sum256([]byte(token))
	found := -1
	for i := range a.tokens {
		if subtle.ConstantTimeCompare(digest[:], a.tokens[i].digest[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return identity.Principal{}, &freeslot.Error{
			Code: freeslot.CodeUnauthenticated, Message: "the token is not one that this replica knows",
		}
	}
	return a.tokens[found].principal, nil
}

func bearerToken(r *http.Request) (string, bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		token = strings.TrimSpace(token)
		return token, strings.EqualFold(scheme, "Bearer") && token != ""
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		token := r.URL.Query().Get("access_token")
		return token, token != ""
	}
	return "", false
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
