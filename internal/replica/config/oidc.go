package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/identity"
)

// maxClockSkew bounds how long a signed token is good after its end.
const maxClockSkew = 5 * time.Minute

// oidcAlgorithms lists the signatures that need a private key, which only the issuer has.
var oidcAlgorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

// OIDC describes the issuer of signed tokens.
type OIDC struct {
	// The URL of the provider, as in its tokens' `iss`: `https://id.example.com`. Unset: no signed
	// token is accepted.
	Issuer string `koanf:"issuer"`
	// What tokens must have in `aud`.
	Audience string `koanf:"audience"`
	// A file with the issuer's keys (JWKS), read again each second. Unset: they are asked of the
	// issuer (discovery), again each 30 seconds, and for each new key.
	JWKSFile string `koanf:"jwks_file"`
	// The signatures that are accepted, of `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`,
	// `ES256`, `ES384`, `ES512` and `EdDSA`.
	Algorithms []string `koanf:"algorithms"`
	// How long a token is good after its end, 0s to 5m.
	ClockSkew time.Duration `koanf:"clock_skew"`
	// The claims that say who the caller is.
	Claims OIDCClaims `koanf:"claims"`
	// Roles by a value of the role's claim: `{freeslot-admins: admin, staff: viewer}`. A token
	// without such a value is refused. Of several the role with most rights counts.
	Roles map[string]identity.Role `koanf:"roles"`
	// The name of this system at the provider, as a client by which users of the console sign in there
	// (authorization code with PKCE). Unset: they sign in with a token alone.
	ClientID string `koanf:"client_id"`
	// A file with the secret of that client. Unset: it is a public client, without one.
	ClientSecretFile string `koanf:"client_secret_file"`
	// The address to which the provider sends browsers back:
	// `https://fleet.example.com/console/oidc/callback`.
	RedirectURL string `koanf:"redirect_url"`
}

// OIDCClaims names claims.
type OIDCClaims struct {
	// The caller's name for people and for the audit.
	Name string `koanf:"name"`
	// The tenant that owns the caller's jobs.
	Tenant string `koanf:"tenant"`
	// A text or a list of texts, which `auth.oidc.roles` maps to roles.
	Role string `koanf:"role"`
	// Scopes of clients, as a list or a text with spaces: `lists:vip-*`, `services:tts`,
	// `documents:app`. What a token does not name is closed to it. Unset: clients have no scopes.
	Scopes string `koanf:"scopes"`
}

func defaultOIDC() OIDC {
	return OIDC{
		Algorithms: []string{"RS256", "ES256"}, ClockSkew: 30 * time.Second,
		Claims: OIDCClaims{Name: "sub", Tenant: "tenant", Role: "role"},
	}
}

// On reports whether signed tokens are accepted.
func (o *OIDC) On() bool { return o.Issuer != "" }

func (o *OIDC) validate(p *Problems) {
	if !o.On() {
		if o.Audience != "" || o.JWKSFile != "" || len(o.Roles) > 0 || o.ClientID != "" {
			p.Addf("auth.oidc.issuer", "is missing, expected the URL of the provider that signs tokens")
		}
		return
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !Loopback(u.Hostname())) {
		p.Addf("auth.oidc.issuer", "is %q, expected a URL such as https://id.example.com", o.Issuer)
	}
	if o.Audience == "" {
		p.Addf("auth.oidc.audience", "is missing, expected what the issuer's tokens for this system have in aud")
	}
	if o.JWKSFile != "" {
		_, err := ReadFile(o.JWKSFile)
		p.Add("auth.oidc.jwks_file", err)
	}
	o.validateClient(p)
	if len(o.Algorithms) == 0 {
		p.Addf("auth.oidc.algorithms", "is empty, expected signatures such as RS256")
	}
	for i, a := range o.Algorithms {
		p.OneOf(element("auth.oidc.algorithms", i), a, oidcAlgorithms...)
	}
	p.DurationBetween("auth.oidc.clock_skew", o.ClockSkew, 0, maxClockSkew)
	for at, claim := range map[string]string{"name": o.Claims.Name, "tenant": o.Claims.Tenant, "role": o.Claims.Role} {
		if claim == "" {
			p.Addf("auth.oidc.claims."+at, "is empty, expected the name of a claim")
		}
	}
	if len(o.Roles) == 0 {
		p.Addf("auth.oidc.roles", "is empty, expected roles by a value of the claim %s", o.Claims.Role)
	}
	for _, value := range slices.Sorted(maps.Keys(o.Roles)) {
		p.OneOf(join("auth.oidc.roles", value), string(o.Roles[value]), identity.RoleNames()...)
	}
}

// callback is the path of the address to which the provider sends browsers back.
const callback = "/console/oidc/callback"

func (o *OIDC) validateClient(p *Problems) {
	if o.ClientID == "" {
		if o.ClientSecretFile != "" || o.RedirectURL != "" {
			p.Addf("auth.oidc.client_id", "is missing, expected the name of this system at the provider")
		}
		return
	}
	if o.ClientSecretFile != "" {
		_, err := ReadFile(o.ClientSecretFile)
		p.Add("auth.oidc.client_secret_file", err)
	}
	u, err := url.Parse(o.RedirectURL)
	if err != nil || u.Host == "" || !strings.HasSuffix(u.Path, callback) ||
		u.Scheme != "https" && (u.Scheme != "http" || !Loopback(u.Hostname())) {
		p.Addf("auth.oidc.redirect_url", "is %q, expected a URL such as https://fleet.example.com%s", o.RedirectURL, callback)
	}
}
