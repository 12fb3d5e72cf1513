package identity

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
)

// Ticket names a caller, so that the same caller is found again without the token. It opens nothing
// by itself, and must be kept where no one can change it.
type Ticket struct {
	// Digest is the SHA-256 of the token.
	Digest []byte `json:"d"`
	// Signed is set for a caller whom an issuer has signed for.
	Signed *SignedTicket `json:"s,omitempty"`
}

// SignedTicket is what an issuer has said of a caller.
type SignedTicket struct {
	Name   string `json:"n"`
	Tenant string `json:"t"`
	Role   Role   `json:"r"`
	// Scopes are as in Principal.
	Scopes Scopes `json:"c"`
	// ExpiresMS is when the caller is no longer known, in milliseconds since 1970.
	ExpiresMS int64 `json:"e"`
	// Key is the thumbprint of the issuer's key.
	Key []byte `json:"k"`
}

// TicketOf returns the ticket of a caller that this authenticator has identified.
func TicketOf(p *Principal) Ticket {
	t := Ticket{Digest: p.digest[:]}
	if p.key != "" {
		role := p.Role
		if p.raised {
			role = Operator
		}
		t.Signed = &SignedTicket{
			Name: p.Name, Tenant: p.Tenant, Role: role, Scopes: p.Scopes, ExpiresMS: p.Expires.UnixMilli(),
			Key: []byte(p.key),
		}
	}
	return t
}

// Redeem returns the caller of a ticket as it is now: with the rights that its token has now. The
// error is a *freeslot.Error with code unauthenticated if the token is gone.
func (a *Authenticator) Redeem(t *Ticket) (Principal, error) {
	gone := &freeslot.Error{Code: freeslot.CodeUnauthenticated, Message: "the token was removed, or has expired"}
	if len(t.Digest) != sha256.Size {
		return Principal{}, gone
	}
	digest := [sha256.Size]byte(t.Digest)
	if t.Signed == nil {
		if p, ok := a.find(digest); ok {
			return p, nil
		}
		return Principal{}, gone
	}
	s := t.Signed
	p := Principal{
		Name: s.Name, Tenant: s.Tenant, Role: s.Role, Scopes: s.Scopes, Expires: time.UnixMilli(s.ExpiresMS),
		digest: digest, key: string(s.Key),
	}
	if a.signed == nil || p.key == "" || !slices.Contains(Roles[:], p.Role) {
		return Principal{}, gone
	}
	if p = a.effective(p); !a.Holds(&p) {
		return Principal{}, gone
	}
	return p, nil
}
