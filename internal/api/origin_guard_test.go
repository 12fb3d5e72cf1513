package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
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
		got.Header.Get("Access-Control-Allow-Methods") != "GET, POST, PUT, DELETE" || got.Header.Get("Access-Control-Allow-Headers") != "Authorization, Content-Type, Idempotency-Key, Traceparent" {
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
