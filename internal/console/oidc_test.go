package console

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/identity"
)

// staff is a user of the provider with claims of its own.
type staff struct {
	mockoidc.MockUser
	claims map[string]any
}

func (u *staff) Claims(_ []string, base *mockoidc.IDTokenClaims) (jwt.Claims, error) {
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

// withProvider returns a console whose users sign in at an OpenID provider.
func withProvider(t *testing.T) (*Console, *mockoidc.MockOIDC) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p, err := mockoidc.NewServer(key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Keypair.KeyID(); err != nil { // later calls would race to set it
		t.Fatal(err)
	}
	if err := p.Start(l, nil); err != nil {
		t.Fatal(err)
	}
	p.ClientID = "freeslot-console"
	secret := t.TempDir() + "/secret"
	writeText(t, secret, p.ClientSecret+"\n")
	auth, err := identity.New(identity.Config{OpenTenant: "default", Log: zap.NewNop(), OIDC: &identity.OIDC{
		Issuer: p.Issuer(), Audience: "freeslot-api", Algorithms: []string{"RS256"}, NameClaim: "sub", TenantClaim: "tenant",
		RoleClaim: "role", Roles: map[string]identity.Role{"staff": identity.Operator},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := auth.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := auth.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		_ = p.Shutdown()
	})
	return newTest(t, auth, &OIDC{
		Issuer: p.Issuer(), ClientID: p.ClientID, SecretFile: secret, RedirectURL: home + "/console/oidc/callback",
	}), p
}

// atProvider begins a sign-in, and returns the browser's cookie and the address that the provider
// sends it back to.
func atProvider(
	t *testing.T, c *Console, p *mockoidc.MockOIDC, to string, claims map[string]any,
) (*http.Cookie, *url.URL) {
	t.Helper()
	p.QueueUser(&staff{mockoidc.MockUser{Subject: "anna"}, claims})
	started := send(c, "GET", home+"/console/oidc/start?to="+url.QueryEscape(to), "", nil, "Sec-Fetch-Site", "none")
	cookies := started.Result().Cookies()
	if started.Code != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("a sign-in begins with %d %s and %d cookies; want 303 with one", started.Code, started.Body, len(cookies))
	}
	if got := cookies[0].String(); !strings.HasPrefix(got, "freeslot-login=") ||
		!strings.HasSuffix(got, "; Path=/; Max-Age=600; HttpOnly; SameSite=Lax") {
		t.Errorf("it sets the cookie %s; want one for ten minutes that comes back from the provider", got)
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := browser.Get(started.Header().Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatal(resp.Status, err)
	}
	return cookies[0], back
}

// comeBack is the browser's way back from the provider, as a link of another site.
func comeBack(c *Console, back *url.URL, cookie *http.Cookie) *httptest.ResponseRecorder {
	return send(c, "GET", back.String(), "", cookie, "Sec-Fetch-Site", "cross-site")
}

// TestLogin: a user who signs in at the provider has the role that the claims give, comes back to
// the place in the page, and the way back works once.
func TestLogin(t *testing.T) {
	t.Parallel()
	c, p := withProvider(t)
	good := map[string]any{"role": "staff", "tenant": "acme"}
	cookie, back := atProvider(t, c, p, "#/jobs?state=dead", good)
	done := comeBack(c, back, cookie)
	var session *http.Cookie
	for _, set := range done.Result().Cookies() {
		if set.Name == plainCookie {
			session = set
		} else if set.Name != cookie.Name || set.MaxAge >= 0 {
			t.Errorf("the end of a sign-in sets %s; want the end of its cookie", set)
		}
	}
	if got := done.Header().Get("Location"); done.Code != http.StatusSeeOther || got != "../#/jobs?state=dead" ||
		session == nil {
		t.Fatalf(
			"the user comes back with %d %s to %q, cookie %v; want 303 to the place with a session", done.Code, done.Body, got,
			session,
		)
	}
	if got := roleOf(c, home, session); got != identity.Operator {
		t.Errorf("the user has the role %q; want operator", got)
	}
	if again := comeBack(c, back, cookie); again.Code == http.StatusSeeOther {
		t.Errorf("the same way back works twice; want a refusal")
	}
}

// TestLoginRefused: without the browser that began, with another's state, with the claims of no
// role, and with what the provider did not send.
func TestLoginRefused(t *testing.T) {
	t.Parallel()
	c, p := withProvider(t)
	good := map[string]any{"role": "staff", "tenant": "acme"}
	for name, of := range map[string]struct {
		claims map[string]any
		change func(cookie *http.Cookie, back url.Values) *http.Cookie
		want   int
	}{
		"another browser": {good, func(*http.Cookie, url.Values) *http.Cookie { return nil }, http.StatusUnauthorized},
		"another state": {
			good, func(cookie *http.Cookie, back url.Values) *http.Cookie { back.Set("state", "x"); return cookie },
			http.StatusUnauthorized,
		},
		"no code": {
			good, func(cookie *http.Cookie, back url.Values) *http.Cookie { back.Del("code"); return cookie },
			http.StatusUnauthorized,
		},
		"another code": {
			good, func(cookie *http.Cookie, back url.Values) *http.Cookie { back.Set("code", "x"); return cookie },
			http.StatusServiceUnavailable,
		},
		"a session's cookie": {good, func(cookie *http.Cookie, _ url.Values) *http.Cookie {
			plain, _ := json.Marshal(newSession(&identity.Principal{}, c.now()))
			cookie.Value = c.sealer.seal(plain)
			return cookie
		}, http.StatusUnauthorized},
		"no role": {
			map[string]any{"role": "guest", "tenant": "acme"},
			func(c *http.Cookie, _ url.Values) *http.Cookie { return c },
			http.StatusUnauthorized,
		},
		"another nonce": {
			map[string]any{"role": "staff", "tenant": "acme", "nonce": "x"},
			func(c *http.Cookie, _ url.Values) *http.Cookie { return c }, http.StatusUnauthorized,
		},
		"another audience": {
			map[string]any{"role": "staff", "tenant": "acme", "aud": "freeslot-api"},
			func(c *http.Cookie, _ url.Values) *http.Cookie { return c }, http.StatusUnauthorized,
		},
	} {
		cookie, back := atProvider(t, c, p, "#/", of.claims)
		query := back.Query()
		cookie = of.change(cookie, query)
		back.RawQuery = query.Encode()
		got := comeBack(c, back, cookie)
		for _, set := range got.Result().Cookies() {
			if set.Name == plainCookie {
				t.Errorf("%s: there is a session; want none", name)
			}
		}
		if got.Code != of.want {
			t.Errorf("%s: %d %s; want %d", name, got.Code, got.Body, of.want)
		}
	}
	for to, want := range map[string]string{
		"#/jobs/0-1": "#/jobs/0-1", "": "#/", "https://evil.example": "#/", "//evil.example": "#/", "#evil": "#/",
		"#/\r\nSet-Cookie: x": "#/", "#/" + strings.Repeat("x", maxReturn): "#/",
	} {
		if got := returnTo(to); got != want {
			t.Errorf("%.40q leads back to %.40q; want %q", to, got, want)
		}
	}
	if got := send(
		c, "GET", "http://fleet.example.com/console/oidc/start", "", nil, "From", "192.0.2.7:1",
	); got.Code != http.StatusForbidden {
		t.Errorf("over plain http from elsewhere a sign-in begins with %d; want 403", got.Code)
	}
	if got := send(newTest(t, everyone()), "GET", home+"/console/oidc/start", "", nil); got.Code != http.StatusNotFound {
		t.Errorf("without a provider a sign-in begins with %d; want 404", got.Code)
	}
}
