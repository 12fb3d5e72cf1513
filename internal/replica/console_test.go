package replica

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/console"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/internal/wire"
)

// TestConsoleServed: each replica has the page, unless its configuration says otherwise.
func TestConsoleServed(t *testing.T) {
	t.Parallel()
	for _, enabled := range []bool{true, false} {
		cfg := configured(t)
		cfg.Console.Enabled = enabled
		r := New(cfg, zap.NewNop(), prometheus.NewRegistry())
		start(t, r)
		page := send(t, r, "GET", "/console/", "")
		session := send(t, r, "GET", "/console/session", "")
		if got := page.status == http.StatusOK && strings.Contains(page.text, "<script") &&
			strings.Contains(session.text, `"replica":"`+cfg.ReplicaID+`"`); got != enabled {
			t.Errorf("console.enabled %v: %d %s, %d %s; want the page and its session: %v", enabled, page.status, page.text,
				session.status, session.text, enabled)
		}
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// TestConsoleLive: a page of a real replica gets its topics from the routes of the API.
func TestConsoleLive(t *testing.T) {
	t.Parallel()
	r := New(configured(t), zap.NewNop(), prometheus.NewRegistry())
	start(t, r)
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ctx := waittest.Context(t)
	page, _, err := websocket.Dial(ctx, "ws://"+r.Addr()+"/console/live", &websocket.DialOptions{Subprotocols: []string{console.Protocol}})
	if err != nil {
		t.Fatal(err)
	}
	defer page.CloseNow()
	if err := page.Write(ctx, websocket.MessageText, []byte(`{"want":["overview","queues","job:0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"]}`)); err != nil {
		t.Fatal(err)
	}
	missing := []string{
		`"id":"nodes.none"`, `"topic":"queues"`, `"nodes":{"draining":0,"online":0,"silent":0}`, `"cells":[{"cell":0,"ok":true}]`,
		`"ready":true`, `"error":{"code":"not_found"`, `"hello":{"replica"`,
	}
	for len(missing) > 0 {
		_, text, err := page.Read(ctx)
		if err != nil {
			t.Fatalf("%v; want frames with %q", err, missing)
		}
		missing = slices.DeleteFunc(missing, func(part string) bool { return strings.Contains(string(text), part) })
	}
}

// TestConsoleSignIn: the session opens the API with its token's role, its begin and end are in the
// audit without a secret, and another replica knows it. A client's WebSocket does not take it.
func TestConsoleSignIn(t *testing.T) {
	t.Parallel()
	r := withRoles(t)
	cfg := r.cfg
	cfg.ReplicaID = "other"
	second := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	start(t, second)
	t.Cleanup(func() {
		if err := second.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	do := func(at *Replica, method, path, body string, cookie *http.Cookie) (answered, []*http.Cookie) {
		t.Helper()
		req, err := http.NewRequestWithContext(waittest.Context(t), method, "http://"+at.Addr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(console.ConsoleHeader, "1")
		req.Header.Set("Origin", "http://"+at.Addr())
		if cookie != nil {
			req.AddCookie(cookie)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answered{resp.StatusCode, string(text)}, resp.Cookies()
	}
	in := func(role identity.Role) *http.Cookie {
		t.Helper()
		got, cookies := do(r, "POST", "/console/sign-in", `{"token":"`+string(role)+`"}`, nil)
		if got.status != http.StatusNoContent || len(cookies) != 1 {
			t.Fatalf("signing in as %s is answered %d %s; want 204 with a cookie", role, got.status, got.text)
		}
		return cookies[0]
	}
	for _, role := range identity.Roles {
		cookie := in(role)
		for _, at := range []*Replica{r, second} {
			if got, _ := do(at, "GET", "/v1/whoami", "", cookie); !strings.Contains(got.text, `"role":"`+string(role)+`"`) {
				t.Errorf("the session of %s is answered %d %s at %s; want its role", role, got.status, got.text, at.cfg.ReplicaID)
			}
		}
		want := http.StatusForbidden
		if role == identity.Admin {
			want = http.StatusOK
		}
		if got, _ := do(r, "GET", "/v1/tokens", "", cookie); got.status != want {
			t.Errorf("the session of %s gets %d for the tokens; want %d", role, got.status, want)
		}
		if got, _ := do(r, "GET", "/metrics", "", cookie); got.status != http.StatusUnauthorized {
			t.Errorf("the session of %s gets %d for /metrics; want 401", role, got.status)
		}
		_, resp, err := websocket.Dial(waittest.Context(t), "ws://"+r.Addr()+"/v1/ws", &websocket.DialOptions{
			HTTPHeader: http.Header{"Cookie": {cookie.Name + "=" + cookie.Value}}, Subprotocols: []string{wire.Protocol},
		})
		if err == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("the session of %s opens a client's WebSocket: %v; want 401", role, err)
		}
	}
	cookie := in(identity.Viewer)
	if got, _ := do(r, "POST", "/console/sign-out", "", cookie); got.status != http.StatusNoContent {
		t.Errorf("signing out is answered %d %s; want 204", got.status, got.text)
	}
	entries := send(t, r, "GET", "/v1/audit", identity.Viewer).text
	if strings.Count(entries, `"call":"sign-in"`) != len(identity.Roles)+1 || strings.Count(entries, `"call":"sign-out"`) != 1 ||
		strings.Contains(entries, cookie.Value) {
		t.Errorf("the audit has %s; want %d times sign-in, once sign-out, and no cookie", entries, len(identity.Roles)+1)
	}
}
