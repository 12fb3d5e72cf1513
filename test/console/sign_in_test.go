package console

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/security"
	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// signIn enters a token.
func (p *tab) signIn(token string) {
	p.t.Helper()
	p.fill("textbox", "Token", token)
	p.press("\r")
	p.gone("textbox", "Token")
}

// status returns the status of a call that a script of the page makes.
func (p *tab) status(method, path, headers string) int {
	p.t.Helper()
	return eval[int](p, fmt.Sprintf(`fetch("..%s", {method: %q, headers: %s}).then((r) => r.status)`, path, method, headers))
}

// TestSignIn: a token signs in once and is kept nowhere; the cookie is the browser's alone.
func TestSignIn(t *testing.T) {
	t.Parallel()
	f := newFleet(t).withTokens()
	r := f.replica("r1", "")
	b := newBrowser(t)
	p := b.tab(wide)
	p.open(r.console())
	p.the("heading", "Sign in to freeslot")
	p.accessible("the sign-in")
	const off = `(() => { const r = document.querySelector(".signin").getBoundingClientRect(); return Math.abs(r.left + r.right - innerWidth) / 2; })()`
	if px := eval[float64](p, off); px > 1 {
		t.Errorf("the sign-in is %g px off the middle of the window; want 0", px)
	}
	p.fill("textbox", "Token", "not-a-token-of-anyone-000000000000")
	p.press("\r")
	p.the("alert", "")
	p.shows("unauthenticated")
	if got := call(p, network.GetCookies, network.GetCookiesParams{}).Cookies; len(got) > 0 {
		t.Errorf("a wrong token gets the cookie %q; want none", got[0].Name)
	}

	p = b.tab(wide)
	p.open(r.console())
	p.signIn(tokens["operator"])
	p.pushed("overview", 0)
	p.shows("operator")
	cookies := call(p, network.GetCookies, network.GetCookiesParams{}).Cookies
	if len(cookies) != 1 {
		t.Fatalf("there are %d cookies; want one", len(cookies))
	}
	c := cookies[0]
	if c.Name != "freeslot" || !c.HTTPOnly || c.SameSite != network.CookieSameSiteStrict || strings.Contains(c.Value, tokens["operator"]) {
		t.Errorf("the cookie is %+v; want freeslot, HttpOnly, SameSite=Strict, without the token", c)
	}
	const hour = 3600
	if left := float64(c.Expires) - float64(time.Now().Unix()); left < hour/2 || left > hour+1 {
		t.Errorf("the browser keeps the cookie for %.0f s; want an hour without use", left)
	}
	kept := eval[string](p, `document.cookie + JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage}) + location.href`)
	if strings.Contains(kept, tokens["operator"]) || strings.Contains(kept, c.Value) {
		t.Errorf("a script can read %s; want neither token nor cookie", kept)
	}
	for _, request := range p.requests {
		if strings.Contains(request, tokens["operator"]) {
			t.Errorf("the token is in the address %s; want it in none", request)
		}
	}
	// Without the header a form of another page could do it.
	for _, path := range []string{"/v1/nodes/node-1/drain", "/admin/registry/config/limits/rollback"} {
		if got := p.status("POST", path, "{}"); got != 403 {
			t.Errorf("a change of %s without Freeslot-Console gets %d; want 403", path, got)
		}
	}
	if got := p.status("GET", "/admin/registry/services", "{}"); got != 200 {
		t.Errorf("the cookie gets %d from the registry; want 200", got)
	}
	p.click("button", "Sign out")
	p.the("heading", "Sign in to freeslot")
	if got := p.status("GET", "/v1/nodes", "{}"); got != 401 {
		t.Errorf("after signing out the page gets %d; want 401", got)
	}
	p.clean(r.addr)
}

// TestSessionEnds: when a session ends, a dialog asks for the token again by itself over the view,
// which keeps what was typed. It can be sent after another sign-in.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	give := func(roles ...string) {
		text := ""
		for _, role := range roles {
			text += fmt.Sprintf("- {name: %[1]s, role: %[1]s, tenant: ops, sha256: %x}\n", role, sha256.Sum256([]byte(tokens[role])))
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	give("admin", "operator")
	f.configuration = map[string]any{"tokens_file": file}
	r := f.replica("r1", "")
	ids := f.busy(r, tokens["admin"])
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/jobs/" + ids["failed"])
	p.signIn(tokens["operator"])
	p.click("button", "Requeue")
	p.fill("textbox", "Reason", "typed before")
	give("admin")
	p.the("dialog", "Your session has ended")
	for _, theme := range []string{"dark", "light"} {
		p.theme(theme)
		p.accessible("the end of a session, " + theme)
	}
	p.signIn(tokens["admin"])
	if got := p.value("textbox", "Reason"); got != "typed before" {
		t.Errorf("the reason is %q after signing in again; want what was typed", got)
	}
	p.click("button", "Requeue")
	p.shows("Submitted again as")
	if got := r.change(tokens["admin"], "requeue-job", ids["failed"]); got.Reason != "typed before" || got.Role != "admin" {
		t.Errorf("the audit has %+v; want the reason and the role admin", got)
	}
	p.clean(r.addr)
}

// staff is a user of the provider with the claims of an operator.
type staff struct{ mockoidc.MockUser }

func (*staff) Claims(_ []string, base *mockoidc.IDTokenClaims) (jwt.Claims, error) {
	text, err := json.Marshal(base)
	claims := jwt.MapClaims{}
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	claims["role"], claims["tenant"] = "staff", "ops"
	return claims, err
}

// provider starts an OpenID provider, which signs its one user in without asking, and makes
// replicas behind the balancer trust it.
func (f *fleet) provider(b *balancer) {
	f.t.Helper()
	p, err := mockoidc.Run()
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = p.Shutdown() })
	p.QueueUser(&staff{mockoidc.MockUser{Subject: "anna"}})
	secret := filepath.Join(f.t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(p.ClientSecret), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.configuration["trusted_proxies"] = []string{"127.0.0.1"}
	f.configuration["auth"] = map[string]any{"oidc": map[string]any{
		"issuer": p.Issuer(), "audience": "freeslot-api", "algorithms": []string{"RS256"}, "roles": map[string]string{"staff": "operator"},
		"client_id": p.ClientID, "client_secret_file": secret, "redirect_url": b.console() + "oidc/callback",
	}}
}

// TestSignInByProvider: behind a proxy that ends TLS a user signs in at an OpenID provider, and
// comes back to the same view. The cookie is for this host and https alone, and no script has it. A
// link on a page of another site opens the console signed in.
func TestSignInByProvider(t *testing.T) {
	long(t)
	t.Parallel()
	b := newSecureBalancer(t)
	f := newFleet(t).withTokens()
	f.provider(b)
	r := f.replica("r1", "")
	b.replicas.Store(&[]*replica{r})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="%s#/replicas">Fleet</a>`, b.console())
	}))
	t.Cleanup(elsewhere.Close)

	p := newBrowser(t).tab(wide)
	call(p, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
	p.open(b.console() + "#/jobs?state=dead")
	p.the("link", "Single sign-on")
	p.accessible("a sign-in with a provider")
	p.click("link", "Single sign-on")
	p.the("heading", "Jobs")
	if at := eval[string](p, "location.href"); at != b.console()+"#/jobs?state=dead" {
		t.Errorf("after the sign-in the browser is at %s; want the view that it came from", at)
	}
	p.shows("anna")
	waittest.Until(t, "live updates over TLS", func() bool { return p.link() == "live" })

	cookies := call(p, network.GetCookies, network.GetCookiesParams{}).Cookies
	if len(cookies) != 1 {
		t.Fatalf("there are the cookies %+v; want one", cookies)
	}
	c := cookies[0]
	if c.Name != "__Host-freeslot" || !c.Secure || !c.HTTPOnly || c.SameSite != network.CookieSameSiteStrict || c.Path != "/" || c.Domain != "127.0.0.1" {
		t.Errorf("the cookie is %+v; want __Host-freeslot, Secure, HttpOnly, SameSite=Strict, for / of this host", c)
	}
	if got := eval[string](p, "document.cookie"); got != "" {
		t.Errorf("a script can read the cookie %s; want none", got)
	}
	if got := p.status("POST", "/v1/nodes/nothing/drain", "{}"); got != 403 {
		t.Errorf("a change without Freeslot-Console gets %d; want 403", got)
	}

	p.open(strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1))
	p.click("link", "Fleet")
	p.the("heading", "Replicas")
	p.shows("anna")
	p.open(b.console() + "#/audit")
	p.shows("sign-in")
}
