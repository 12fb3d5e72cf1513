package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/freeslot/freeslot"
)

// Credential is a token and the caller that it identifies.
type Credential struct {
	Token    string
	Tenant   string
	Operator bool
}

// Principal is a caller.
type Principal struct {
	Tenant string
	// Operator is true if the caller may see and cancel the jobs of all tenants, and see the nodes.
	Operator bool
}

// scope returns the tenant whose jobs p may read and change; empty means any tenant.
func (p Principal) scope() string {
	if p.Operator {
		return ""
	}
	return p.Tenant
}

// Authenticator identifies callers by static bearer tokens. It is immutable and safe for concurrent
// use.
type Authenticator struct {
	open   Principal
	tokens []hashedCredential
}

type hashedCredential struct {
	digest    [sha256.Size]byte
	principal Principal
}

// NewAuthenticator makes an authenticator for the given tokens. Without tokens every caller is an
// operator of openTenant.
func NewAuthenticator(credentials []Credential, openTenant string) *Authenticator {
	a := &Authenticator{open: Principal{Tenant: openTenant, Operator: true}}
	for _, c := range credentials {
		a.tokens = append(a.tokens, hashedCredential{
			digest:    sha256.Sum256([]byte(c.Token)),
			principal: Principal{Tenant: c.Tenant, Operator: c.Operator},
		})
	}
	return a
}

// Open reports whether there are no tokens, so that every caller is accepted.
func (a *Authenticator) Open() bool { return len(a.tokens) == 0 }

// Authenticate returns the caller that sent r. The token is in the Authorization header. In the
// handshake of a WebSocket, where browsers cannot set headers, it may be in the query parameter
// access_token. The error is a *freeslot.Error with code unauthenticated.
func (a *Authenticator) Authenticate(r *http.Request) (tenant string, operator bool, err error) {
	p, e := a.principal(r)
	if e != nil {
		return "", false, e
	}
	return p.Tenant, p.Operator, nil
}

func (a *Authenticator) principal(r *http.Request) (Principal, *freeslot.Error) {
	if a.Open() {
		return a.open, nil
	}
	token, ok := bearerToken(r)
	if !ok {
		return Principal{}, &freeslot.Error{
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
		return Principal{}, &freeslot.Error{
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

type principalKey struct{}

// Caller returns the caller of the request that ctx belongs to. It panics outside of an
// authenticated route: to continue would skip authorization.
func Caller(ctx context.Context) Principal { return ctx.Value(principalKey{}).(Principal) }

// OperatorsOnly refuses other callers. doing names what only operators may do: "see the nodes".
func OperatorsOnly(ctx context.Context, doing string) error {
	if Caller(ctx).Operator {
		return nil
	}
	return &freeslot.Error{Code: freeslot.CodePermissionDenied, Message: "only operators may " + doing}
}
