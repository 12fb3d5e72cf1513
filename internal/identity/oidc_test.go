package identity_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const audience = "freeslot"

// provider is an OpenID provider at an address that it keeps.
type provider struct {
	*mockoidc.MockOIDC
	t       *testing.T
	address string
}

// provide starts a provider at an address, with a new key.
func provide(t *testing.T, address string) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t}
	if p.MockOIDC, err = mockoidc.NewServer(key); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Keypair.KeyID(); err != nil { // later calls would race to set it
		t.Fatal(err)
	}
	p.ClientID, p.address = audience, l.Addr().String()
	if err := p.Start(l, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

func (p *provider) stop() {
	http.DefaultClient.CloseIdleConnections()
	_ = p.Shutdown()
}

// user is a user of the provider with claims of its own.
type user struct {
	mockoidc.MockUser
	claims map[string]any
}

func (u *user) Claims(_ []string, base *mockoidc.IDTokenClaims) (jwt.Claims, error) {
	text, err := json.Marshal(base)
	claims := jwt.MapClaims{}
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	for name, value := range u.claims {
		claims[name] = value
	}
	return claims, err
}

// signIn goes the way of a user with a browser, and returns the token.
func (p *provider) signIn(claims map[string]any) string {
	p.t.Helper()
	p.QueueUser(&user{mockoidc.MockUser{Subject: "anna"}, claims})
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	back := "http://127.0.0.1:1/callback"
	resp, err := browser.Get(p.AuthorizationEndpoint() + "?" + url.Values{
		"scope": {"openid"}, "response_type": {"code"}, "client_id": {p.ClientID}, "redirect_uri": {back}, "state": {"s"}, "nonce": {"n"},
	}.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	_ = resp.Body.Close()
	at, err := resp.Location()
	if err != nil {
		p.t.Fatal(resp.Status, err)
	}
	resp, err = http.PostForm(p.TokenEndpoint(), url.Values{
		"grant_type": {"authorization_code"}, "code": {at.Query().Get("code")}, "client_id": {p.ClientID}, "client_secret": {p.ClientSecret},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var tokens struct {
		ID string `json:"id_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&tokens); err != nil || tokens.ID == "" {
		p.t.Fatal(resp.Status, err)
	}
	return tokens.ID
}

// sign signs claims without a user. change changes those of a good token.
func (p *provider) sign(change func(claims jwt.MapClaims)) string {
	p.t.Helper()
	claims := jwt.MapClaims{
		"iss": p.Issuer(), "aud": audience, "sub": "ci", "tenant": "acme", "role": "devs", "exp": time.Now().Add(time.Hour).Unix(),
	}
	if change != nil {
		change(claims)
	}
	token, err := p.Keypair.SignJWT(claims)
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

func (p *provider) config() *identity.OIDC {
	return &identity.OIDC{
		Issuer: p.Issuer(), Audience: audience, Algorithms: []string{"RS256"}, ClockSkew: time.Second,
		NameClaim: "sub", TenantClaim: "tenant", RoleClaim: "role",
		Roles: map[string]identity.Role{"devs": identity.Client, "ops": identity.Operator},
	}
}

func authenticate(a *identity.Authenticator, token string) (identity.Principal, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return a.Authenticate(r)
}

func newAuthenticator(t *testing.T, o *identity.OIDC) *identity.Authenticator {
	t.Helper()
	a, err := identity.New(identity.Config{OIDC: o, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func expectCode(t *testing.T, what string, err error, code freeslot.Code, text string) {
	t.Helper()
	if freeslot.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, expected %s with %q", what, err, code, text)
	}
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	p := provide(t, "127.0.0.1:0")
	a := newAuthenticator(t, p.config())
	for role, want := range map[any]identity.Role{"devs": identity.Client, "ops": identity.Operator} {
		got, err := authenticate(a, p.signIn(map[string]any{"tenant": "acme", "role": role}))
		if err != nil || got.Name != "anna" || got.Tenant != "acme" || got.Role != want || !a.Holds(&got) {
			t.Errorf("role %v is %+v, %v, expected anna of acme with the role %s", role, got, err, want)
		}
	}
	several := p.signIn(map[string]any{"tenant": "acme", "role": []string{"devs", "ops", "unknown"}})
	if got, err := authenticate(a, several); err != nil || got.Role != identity.Operator {
		t.Errorf("several roles are %+v, %v, expected an operator", got, err)
	}
}

// TestSignedOperator: a session of an operator who was an admin ends once operators are none.
func TestSignedOperator(t *testing.T) {
	t.Parallel()
	p := provide(t, "127.0.0.1:0")
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, file)
	a := started(t, identity.Config{OIDC: p.config(), TokensFile: file, OperatorsAreAdmins: true})
	defer a.Stop(t.Context())
	signIn := func(role string) identity.Principal {
		who, err := authenticate(a, p.sign(func(c jwt.MapClaims) { c["role"] = role }))
		if err != nil {
			t.Fatal(err)
		}
		return who
	}
	operator, client := signIn("ops"), signIn("devs")
	if operator.Role != identity.Admin || !a.Holds(&operator) {
		t.Errorf("an operator is %s; want an admin that holds", operator.Role)
	}
	_, line := token(t, identity.Principal{Name: "root", Tenant: "ops", Role: identity.Admin})
	write(t, file, line)
	waittest.Until(t, "the operator to be no admin", func() bool { return !a.Holds(&operator) })
	if !a.Holds(&client) {
		t.Error("a client's session ends, too; want that it goes on")
	}
}

func TestSignedScopes(t *testing.T) {
	t.Parallel()
	p := provide(t, "127.0.0.1:0")
	cfg := p.config()
	open := newAuthenticator(t, cfg)
	scoped := *cfg
	scoped.ScopesClaim = "scope"
	a := newAuthenticator(t, &scoped)
	closed := identity.Scopes{Lists: []string{}, Services: []string{}, Documents: []string{}}
	some := identity.Scopes{Lists: []string{"vip-*", "deny"}, Services: []string{}, Documents: []string{"app"}}
	for _, c := range []struct {
		a     *identity.Authenticator
		role  string
		claim any
		want  identity.Scopes
	}{
		{open, "devs", "lists:vip-*", identity.Scopes{}},
		{a, "devs", nil, closed},
		{a, "devs", "openid lists:vip-* lists:deny documents:app", some},
		{a, "devs", []string{"lists:vip-*", "lists:deny", "documents:app", "profile"}, some},
		{a, "ops", "lists:vip-*", identity.Scopes{}},
	} {
		who, err := authenticate(c.a, p.sign(func(claims jwt.MapClaims) { claims["role"], claims["scope"] = c.role, c.claim }))
		if err != nil || !reflect.DeepEqual(who.Scopes, c.want) {
			t.Errorf("%s with %v has the scopes %+v, %v, expected %+v", c.role, c.claim, who.Scopes, err, c.want)
		}
	}
}

func TestSignedTokensRefused(t *testing.T) {
	t.Parallel()
	p, other := provide(t, "127.0.0.1:0"), provide(t, "127.0.0.1:0")
	a := newAuthenticator(t, p.config())
	if _, err := authenticate(a, p.sign(nil)); err != nil {
		t.Fatal(err)
	}
	set := func(name string, value any) string {
		return p.sign(func(c jwt.MapClaims) { c[name] = value })
	}
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{
		"iss": p.Issuer(), "aud": audience, "sub": "ci", "tenant": "acme", "role": "devs", "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(p.sign(nil), ".")
	forged := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"`+p.Issuer()+`","aud":"freeslot","sub":"ci","tenant":"other","role":"ops","exp":4000000000}`)) + "." + parts[2]
	for what, c := range map[string]struct{ token, want string }{
		"another audience":        {set("aud", "wiki"), "audience"},
		"another issuer":          {set("iss", other.Issuer()), "different provider"},
		"alg none":                {none, "none"},
		"a key of another issuer": {other.sign(func(c jwt.MapClaims) { c["iss"] = p.Issuer() }), "no key of the issuer"},
		"forged claims":           {forged, "no key of the issuer"},
		"an expired token":        {set("exp", time.Now().Add(-time.Minute).Unix()), "expired"},
		"not yet valid":           {set("nbf", time.Now().Add(time.Hour).Unix()), "nbf"},
		"no tenant":               {set("tenant", nil), "claim tenant"},
		"a bad tenant":            {set("tenant", "a b"), "claim tenant"},
		"no role":                 {set("role", "guests"), "claim role"},
		"a line break in a name":  {set("sub", "a\nb"), "claim sub"},
		"no token":                {"a.b.c", "the token is refused"},
	} {
		_, err := authenticate(a, c.token)
		expectCode(t, what, err, freeslot.CodeUnauthenticated, c.want)
	}
}

// TestSignedTokenExpires: a token whose check is remembered ends at its time.
func TestSignedTokenExpires(t *testing.T) {
	t.Parallel()
	p := provide(t, "127.0.0.1:0")
	a := newAuthenticator(t, p.config())
	token := p.sign(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(time.Second).Unix() })
	who, err := authenticate(a, token)
	if err != nil || who.Expires.IsZero() {
		t.Fatalf("%+v, %v, expected a caller with an end", who, err)
	}
	waittest.Until(t, "the token to expire", func() bool {
		_, err := authenticate(a, token)
		return freeslot.CodeOf(err) == freeslot.CodeUnauthenticated && !a.Holds(&who)
	})
}

// TestProviderAway: who comes with a known key is let in, and others once the provider is back.
// Then it has another key.
func TestProviderAway(t *testing.T) {
	t.Parallel()
	p := provide(t, "127.0.0.1:0")
	a := newAuthenticator(t, p.config())
	early := newAuthenticator(t, p.config()) // has not asked for keys
	session, err := authenticate(a, p.sign(nil))
	if err != nil {
		t.Fatal(err)
	}
	changed := a.Changed()
	other := provide(t, "127.0.0.1:0")
	p.stop()
	fresh := p.sign(func(c jwt.MapClaims) { c["sub"] = "other" })
	if who, err := authenticate(a, fresh); err != nil || who.Name != "other" {
		t.Errorf("a known key while the provider is away: %+v, %v, expected other", who, err)
	}
	_, err = authenticate(early, fresh)
	expectCode(t, "no known key while the provider is away", err, freeslot.CodeUnavailable, "keys of its issuer")
	// A key that is new since the last read may be one that the provider will show.
	ofOther := other.sign(func(c jwt.MapClaims) { c["iss"] = p.Issuer() })
	waittest.Until(t, "the keys to be asked for again", func() bool {
		_, err := authenticate(a, ofOther)
		return freeslot.CodeOf(err) == freeslot.CodeUnavailable
	})
	if !a.Holds(&session) {
		t.Error("a session ends while the provider is away; want that it goes on")
	}

	rotated := provide(t, p.address)
	token := rotated.sign(nil)
	for _, one := range []*identity.Authenticator{a, early} {
		waittest.Until(t, "the new key to be known", func() bool {
			_, err := authenticate(one, token)
			return err == nil
		})
	}
	if a.Holds(&session) {
		t.Error("a session of a withdrawn key holds; want that it ends")
	}
	select {
	case <-changed:
	default:
		t.Error("the withdrawal was not told")
	}
	_, err = authenticate(a, fresh)
	expectCode(t, "a key that the provider has withdrawn", err, freeslot.CodeUnauthenticated, "no key of the issuer")
}

// TestKeysFromFile: with a file of keys the provider is never asked. Start reads it again.
func TestKeysFromFile(t *testing.T) {
	t.Parallel()
	p := provide(t, "127.0.0.1:0")
	p.stop()
	keys, err := p.Keypair.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	cfg := p.config()
	cfg.JWKSFile = filepath.Join(t.TempDir(), "jwks.json")
	a := newAuthenticator(t, cfg)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	waittest.Until(t, "the missing file to be told", func() bool {
		ok, detail := a.Ready()
		return ok && strings.Contains(detail, "auth.oidc: the keys of "+p.Issuer()+" cannot be read: ")
	})
	if err := os.WriteFile(cfg.JWKSFile, keys, 0o600); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the file to be read", func() bool {
		_, err := authenticate(a, p.sign(nil))
		_, detail := a.Ready()
		return err == nil && detail == ""
	})
}

// TestKeyRotation: a further key changes nothing for sessions, and a key that has gone ends its
// own.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	p, other := provide(t, "127.0.0.1:0"), provide(t, "127.0.0.1:0")
	cfg := p.config()
	cfg.JWKSFile = filepath.Join(t.TempDir(), "jwks.json")
	keep := func(providers ...*provider) {
		t.Helper()
		var all []string
		for _, one := range providers {
			keys, err := one.Keypair.JWKS()
			if err != nil {
				t.Fatal(err)
			}
			var set struct{ Keys []json.RawMessage }
			if err := json.Unmarshal(keys, &set); err != nil {
				t.Fatal(err)
			}
			all = append(all, string(set.Keys[0]))
		}
		write(t, cfg.JWKSFile, `{"keys":[`+strings.Join(all, ",")+`]}`)
	}
	keep(p)
	a := started(t, identity.Config{OIDC: cfg})
	defer a.Stop(t.Context())
	session, err := authenticate(a, p.sign(nil))
	if err != nil {
		t.Fatal(err)
	}
	changed := a.Changed()
	keep(p, other)
	waittest.Receive(t, "the second key to be told", changed)
	second, err := authenticate(a, other.sign(func(c jwt.MapClaims) { c["iss"] = p.Issuer() }))
	if err != nil || !a.Holds(&session) || !a.Holds(&second) {
		t.Errorf("with both keys the sessions hold: %v, %v, %v; want that both do", a.Holds(&session), a.Holds(&second), err)
	}
	changed = a.Changed()
	keep(other)
	waittest.Receive(t, "the end of the first key to be told", changed)
	if a.Holds(&session) || !a.Holds(&second) {
		t.Errorf("without the first key the sessions hold: %v, %v; want the second alone", a.Holds(&session), a.Holds(&second))
	}
}

// BenchmarkSignedToken is what a request costs that comes with a token which was checked before.
func BenchmarkSignedToken(b *testing.B) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	pair, err := mockoidc.NewKeypair(key)
	if err != nil {
		b.Fatal(err)
	}
	keys, err := pair.JWKS()
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "jwks.json")
	if err := os.WriteFile(file, keys, 0o600); err != nil {
		b.Fatal(err)
	}
	a, err := identity.New(identity.Config{Log: zap.NewNop(), OIDC: &identity.OIDC{
		Issuer: "https://id.example.com", Audience: audience, JWKSFile: file, Algorithms: []string{"RS256"},
		NameClaim: "sub", TenantClaim: "tenant", RoleClaim: "role", Roles: map[string]identity.Role{"devs": identity.Client},
	}})
	if err != nil {
		b.Fatal(err)
	}
	token, err := pair.SignJWT(jwt.MapClaims{
		"iss": "https://id.example.com", "aud": audience, "sub": "ci", "tenant": "acme", "role": "devs", "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := authenticate(a, token); err != nil {
			b.Fatal(err)
		}
	}
}
