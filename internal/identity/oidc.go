package identity

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// maxVerified bounds the signed tokens whose check is remembered.
const maxVerified = 10_000

// OIDC describes the issuer of signed tokens. All fields but JWKSFile and ScopesClaim are required.
type OIDC struct {
	Issuer, Audience string
	// JWKSFile holds the issuer's keys; empty: they are asked of the issuer.
	JWKSFile   string
	Algorithms []string
	// ClockSkew is how long a token is good after its end.
	ClockSkew time.Duration
	// NameClaim, TenantClaim and RoleClaim name the claims.
	NameClaim, TenantClaim, RoleClaim string
	// ScopesClaim names the claim of scopes; empty: tokens have none.
	ScopesClaim string
	// Roles maps values of the role's claim to roles.
	Roles map[string]Role
}

// signed identifies callers by tokens that an issuer has signed.
type signed struct {
	cfg      OIDC
	keys     *keySet
	verifier *oidc.IDTokenVerifier

	mu       sync.Mutex // guards verified
	verified map[[sha256.Size]byte]Principal
}

// newSigned makes a signed that calls changed after a change of the issuer's keys.
func newSigned(cfg OIDC, log *zap.Logger, changed func()) *signed {
	s := &signed{cfg: cfg, verified: make(map[[sha256.Size]byte]Principal)}
	s.keys = newKeySet(cfg, log, func() {
		s.forget()
		changed()
	})
	s.verifier = oidc.NewVerifier(cfg.Issuer, s.keys, &oidc.Config{
		ClientID: cfg.Audience, SupportedSigningAlgs: cfg.Algorithms,
		Now: func() time.Time { return time.Now().Add(-cfg.ClockSkew) },
	})
	return s
}

// forget makes all tokens be checked again, because the issuer's keys have changed.
func (s *signed) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.verified)
}

// find returns the caller of a signed token. It checks a token once, and then knows its digest.
func (s *signed) find(ctx context.Context, token string, digest [sha256.Size]byte) (Principal, error) {
	s.mu.Lock()
	p, ok := s.verified[digest]
	s.mu.Unlock()
	if ok && time.Now().Before(p.Expires) {
		return p, nil
	}
	keys := s.keys.keys.Load()
	found := &signing{}
	p, err := s.verify(context.WithValue(ctx, signingKey{}, found), token)
	switch {
	case found.unread:
		return p, &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: time.Second,
			Message: "the token cannot be checked: the keys of its issuer cannot be read",
		}
	case err != nil:
		return p, &freeslot.Error{Code: freeslot.CodeUnauthenticated, Message: "the token is refused: " + err.Error()}
	}
	p.digest, p.key = digest, found.key
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys.keys.Load() != keys {
		return p, nil // another key set has come, and its check comes with the next request
	}
	if len(s.verified) >= maxVerified {
		clear(s.verified) // costs one check for each token in use
	}
	s.verified[digest] = p
	return p, nil
}

func (s *signed) verify(ctx context.Context, token string) (p Principal, err error) {
	checked, err := s.verifier.Verify(ctx, token)
	if err != nil {
		return p, err
	}
	return s.principal(checked)
}

// principal returns the caller whom a checked token names.
func (s *signed) principal(checked *oidc.IDToken) (p Principal, err error) {
	var claims map[string]any
	if err := checked.Claims(&claims); err != nil {
		return p, err
	}
	p.Expires = checked.Expiry.Add(s.cfg.ClockSkew)
	if p.Name, err = textClaim(claims, s.cfg.NameClaim); err != nil {
		return p, err
	}
	if p.Tenant, err = textClaim(claims, s.cfg.TenantClaim); err != nil {
		return p, err
	}
	if err := freeslot.ValidateName("claim "+s.cfg.TenantClaim, p.Tenant); err != nil {
		return p, err
	}
	p.Role = s.role(claims[s.cfg.RoleClaim])
	if p.Role == "" {
		return p, fmt.Errorf("claim %s has no value of auth.oidc.roles", s.cfg.RoleClaim)
	}
	if s.cfg.ScopesClaim != "" && p.Role.Scoped() {
		p.Scopes = scopesOf(texts(claims[s.cfg.ScopesClaim]))
	}
	return p, nil
}

func textClaim(claims map[string]any, name string) (string, error) {
	text, _ := claims[name].(string)
	if text == "" || len(text) > freeslot.MaxLabelValueLength || strings.ContainsFunc(text, unicode.IsControl) {
		return "", fmt.Errorf("claim %s is no line of at most %d bytes", name, freeslot.MaxLabelValueLength)
	}
	return text, nil
}

// role returns the role of a text, or the one with most rights of a list.
func (s *signed) role(claim any) (found Role) {
	values := texts(claim)
	if text, ok := claim.(string); ok {
		values = []string{text} // it may have spaces
	}
	for _, text := range values {
		if role := s.cfg.Roles[text]; slices.Index(Roles[:], role) > slices.Index(Roles[:], found) {
			found = role
		}
	}
	return found
}

// texts returns the texts of a list, or the words of a text.
func texts(claim any) (all []string) {
	if text, ok := claim.(string); ok {
		return strings.Fields(text)
	}
	values, _ := claim.([]any)
	for _, v := range values {
		if text, ok := v.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// scopesOf returns the scopes of texts such as lists:vip-*. Other texts, such as openid, say
// nothing.
func scopesOf(texts []string) Scopes {
	s := Scopes{Lists: []string{}, Services: []string{}, Documents: []string{}}
	for _, text := range texts {
		switch scope, pattern, _ := strings.Cut(text, ":"); Scope(scope) {
		case Lists:
			s.Lists = append(s.Lists, pattern)
		case Services:
			s.Services = append(s.Services, pattern)
		case Documents:
			s.Documents = append(s.Documents, pattern)
		}
	}
	return s
}
