package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
)

// TestForeignHosts: a page that made its own name point to 127.0.0.1 sends that
// name as Host.
func TestForeignHosts(t *testing.T) {
	t.Parallel()
	open := setup(t, api.Config{})
	guarded := setup(t, api.Config{}, withTokens)
	for host, ok := range map[string]bool{
		"127.0.0.1:7480": true, "localhost:7480": true, "localhost": true, "[::1]:7480": true, "[::1]": true, "127.8.8.8:1": true,
		"evil.example:7480": false, "localhost.evil.example": false, "10.0.0.1:7480": false, "": false, "127.0.0.1.evil.example": false,
	} {
		got := open.do(t, "POST", "/v1/jobs", ttsJob, "Host", host)
		if ok && got.status != http.StatusAccepted {
			t.Errorf("%q is refused: %s", host, got.text)
		}
		if !ok {
			got.refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		}
		if got := guarded.do(t, "POST", "/v1/jobs", ttsJob, "Host", host, "Authorization", "Bearer acme-token"); got.status != http.StatusAccepted {
			t.Errorf("with a token %q is refused: %s", host, got.text)
		}
	}
}

func TestForeignOrigins(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{AllowedOrigins: []string{"https://app.example.com"}})
	for origin, ok := range map[string]bool{
		"http://127.0.0.1:7480": true, "https://app.example.com": true,
		"http://localhost:7480": false, "http://127.0.0.1:3000": false, "https://evil.example": false, "null": false, "": false,
		"http://app.example.com": false, "https://app.example.com.evil.example": false,
	} {
		got := f.do(t, "POST", "/v1/jobs", ttsJob, "Origin", origin)
		if ok && got.status != http.StatusAccepted {
			t.Errorf("%q is refused: %s", origin, got.text)
		}
		if !ok {
			got.refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		}
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{AllowedOrigins: []string{"https://app.example.com"}}, withTokens)
	ask := func(origin string) response {
		return f.do(t, "OPTIONS", "/v1/jobs", "", "Origin", origin, "Access-Control-Request-Method", "POST")
	}
	got := ask("https://app.example.com")
	if got.status != http.StatusNoContent || got.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" ||
		got.header.Get("Access-Control-Allow-Methods") != "GET, POST, PUT, DELETE" || got.header.Get("Access-Control-Allow-Headers") != "Authorization, Content-Type, Idempotency-Key, Traceparent" {
		t.Error(got.status, got.header)
	}
	if got := ask("https://evil.example"); got.status != http.StatusForbidden || got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error(got.status, got.header)
	}
	// The answers themselves can be read by the page, refusals included.
	got = f.do(t, "GET", "/v1/jobs", "", "Origin", "https://app.example.com")
	if got.status != http.StatusUnauthorized || got.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
		t.Error(got.status, got.header)
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	a := api.NewAuthenticator([]api.Credential{{Token: "acme-token", Tenant: "acme"}, {Token: "root-token", Tenant: "ops", Operator: true}}, "default")
	request := func(target string, header ...string) *http.Request {
		r := httptest.NewRequest("GET", target, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	for name, c := range map[string]struct {
		r        *http.Request
		tenant   string
		operator bool
	}{
		"client":          {request("/", "Authorization", "Bearer acme-token"), "acme", false},
		"operator":        {request("/", "Authorization", "bearer root-token"), "ops", true},
		"handshake":       {request("/v1/ws?access_token=acme-token", "Upgrade", "websocket"), "acme", false},
		"none":            {request("/"), "", false},
		"query elsewhere": {request("/v1/jobs?access_token=acme-token"), "", false},
		"unknown":         {request("/", "Authorization", "Bearer acme-tokem"), "", false},
		"prefix":          {request("/", "Authorization", "Bearer acme"), "", false},
		"empty":           {request("/", "Authorization", "Bearer "), "", false},
		"other scheme":    {request("/", "Authorization", "Basic acme-token"), "", false},
		"header wins":     {request("/v1/ws?access_token=acme-token", "Upgrade", "websocket", "Authorization", "Bearer wrong"), "", false},
	} {
		tenant, operator, err := a.Authenticate(c.r)
		if tenant != c.tenant || operator != c.operator || (err == nil) != (c.tenant != "") {
			t.Errorf("%s: %q %v %v", name, tenant, operator, err)
		}
		if err != nil && freeslot.CodeOf(err) != freeslot.CodeUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	tenant, operator, err := api.NewAuthenticator(nil, "default").Authenticate(request("/"))
	if tenant != "default" || !operator || err != nil {
		t.Errorf("without tokens: %q %v %v", tenant, operator, err)
	}
}
