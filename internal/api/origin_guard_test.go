package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// TestForeignHosts: a page that made its own name point to 127.0.0.1 sends that name as Host.
func TestForeignHosts(t *testing.T) {
	t.Parallel()
	open := apitest.New(t, api.Config{})
	guarded := apitest.New(t, api.Config{}, apitest.WithTokens)
	for host, ok := range map[string]bool{
		"127.0.0.1:7480": true, "localhost:7480": true, "localhost": true, "[::1]:7480": true, "[::1]": true, "127.8.8.8:1": true,
		"evil.example:7480": false, "localhost.evil.example": false, "10.0.0.1:7480": false, "": false, "127.0.0.1.evil.example": false,
	} {
		got := open.Do(t, "POST", "/v1/jobs", ttsJob, "Host", host)
		if ok && got.Status != http.StatusAccepted {
			t.Errorf("%q is refused: %s", host, got.Text)
		}
		if !ok {
			got.Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		}
		if got := guarded.Do(t, "POST", "/v1/jobs", ttsJob, "Host", host, "Authorization", "Bearer acme-token"); got.Status != http.StatusAccepted {
			t.Errorf("with a token %q is refused: %s", host, got.Text)
		}
	}
}

func TestForeignOrigins(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{AllowedOrigins: []string{"https://app.example.com"}})
	for origin, ok := range map[string]bool{
		"http://127.0.0.1:7480": true, "https://app.example.com": true,
		"http://localhost:7480": false, "http://127.0.0.1:3000": false, "https://evil.example": false, "null": false, "": false,
		"http://app.example.com": false, "https://app.example.com.evil.example": false,
	} {
		got := f.Do(t, "POST", "/v1/jobs", ttsJob, "Origin", origin)
		if ok && got.Status != http.StatusAccepted {
			t.Errorf("%q is refused: %s", origin, got.Text)
		}
		if !ok {
			got.Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		}
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{AllowedOrigins: []string{"https://app.example.com"}}, apitest.WithTokens)
	ask := func(origin string) apitest.Response {
		return f.Do(t, "OPTIONS", "/v1/jobs", "", "Origin", origin, "Access-Control-Request-Method", "POST")
	}
	got := ask("https://app.example.com")
	if got.Status != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" ||
		got.Header.Get("Access-Control-Allow-Methods") != "GET, POST, PUT, DELETE" || got.Header.Get("Access-Control-Allow-Headers") != "Authorization, Content-Type, Freeslot-Reason, Idempotency-Key, Traceparent" {
		t.Error(got.Status, got.Header)
	}
	if got := ask("https://evil.example"); got.Status != http.StatusForbidden || got.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error(got.Status, got.Header)
	}
	// The page can read the answers, including refusals.
	got = f.Do(t, "GET", "/v1/jobs", "", "Origin", "https://app.example.com")
	if got.Status != http.StatusUnauthorized || got.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
		t.Error(got.Status, got.Header)
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	a := identity.NewAuthenticator([]identity.Credential{
		{Token: "acme-token", Principal: identity.Principal{Tenant: "acme", Role: identity.Client}},
		{Token: "root-token", Principal: identity.Principal{Tenant: "ops", Role: identity.Operator}},
	}, "default", false)
	request := func(target string, header ...string) *http.Request {
		r := httptest.NewRequest("GET", target, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	for name, c := range map[string]struct {
		r      *http.Request
		tenant string
		role   identity.Role
	}{
		"client":          {request("/", "Authorization", "Bearer acme-token"), "acme", identity.Client},
		"operator":        {request("/", "Authorization", "bearer root-token"), "ops", identity.Operator},
		"handshake":       {request("/v1/ws?access_token=acme-token", "Upgrade", "websocket"), "acme", identity.Client},
		"none":            {request("/"), "", ""},
		"query elsewhere": {request("/v1/jobs?access_token=acme-token"), "", ""},
		"unknown":         {request("/", "Authorization", "Bearer acme-tokem"), "", ""},
		"prefix":          {request("/", "Authorization", "Bearer acme"), "", ""},
		"empty":           {request("/", "Authorization", "Bearer "), "", ""},
		"other scheme":    {request("/", "Authorization", "Basic acme-token"), "", ""},
		"header wins":     {request("/v1/ws?access_token=acme-token", "Upgrade", "websocket", "Authorization", "Bearer wrong"), "", ""},
	} {
		who, err := a.Authenticate(c.r)
		if who.Tenant != c.tenant || who.Role != c.role || (err == nil) != (c.tenant != "") {
			t.Errorf("%s: %+v, %v, expected %s of %q", name, who, err, c.role, c.tenant)
		}
		if err != nil && freeslot.CodeOf(err) != freeslot.CodeUnauthenticated {
			t.Errorf("%s: %v; want no error or freeslot.CodeOf(err) == freeslot.CodeUnauthenticated", name, err)
		}
	}
	who, err := identity.NewAuthenticator(nil, "default", false).Authenticate(request("/"))
	if who.Tenant != "default" || who.Role != identity.Admin || err != nil {
		t.Errorf("without tokens: %+v, %v, expected an admin of default", who, err)
	}
}

// TestOperatorsAreAdmins: until there is an admin's token.
func TestOperatorsAreAdmins(t *testing.T) {
	t.Parallel()
	root := identity.Credential{Token: "root-token", Principal: identity.Principal{Tenant: "ops", Role: identity.Operator}}
	admin := identity.Credential{Token: "admin-token", Principal: identity.Principal{Tenant: "ops", Role: identity.Admin}}
	for _, c := range []struct {
		tokens []identity.Credential
		on     bool
		role   identity.Role
	}{
		{[]identity.Credential{root}, true, identity.Admin},
		{[]identity.Credential{root}, false, identity.Operator},
		{[]identity.Credential{root, admin}, true, identity.Operator},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer root-token")
		who, err := identity.NewAuthenticator(c.tokens, "default", c.on).Authenticate(r)
		if err != nil || who.Role != c.role {
			t.Errorf("%d tokens, operators_are_admins %v: %+v, %v, expected %s", len(c.tokens), c.on, who, err, c.role)
		}
	}
}
