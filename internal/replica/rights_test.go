package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/reference"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/internal/wire"
)

// route is an operation of the OpenAPI document.
type route struct{ id, method, path string }

// withRoles starts a replica that has a token for each role, with the role's name as the secret.
func withRoles(t *testing.T) *Replica {
	t.Helper()
	cfg := configured(t)
	for _, role := range identity.Roles {
		cfg.Tokens = append(cfg.Tokens, config.Token{Token: string(role), Tenant: "acme", Role: role})
	}
	cfg.Auth.Metrics = true
	cfg.Registry.V1.KeyPrefix = cfg.Redis.KeyPrefix + ":old"
	r := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	start(t, r)
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// routesOf reads the OpenAPI document of a replica, without the routes that need no token.
func routesOf(t *testing.T, r *Replica) (all []route) {
	t.Helper()
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string
			Tags        []string
		}
	}
	if err := json.Unmarshal([]byte(send(t, r, "GET", "/openapi.json", "").text), &document); err != nil {
		t.Fatal(err)
	}
	for path, methods := range document.Paths {
		for method, op := range methods {
			if !slices.Contains(op.Tags, "health") || op.OperationID == identity.Metrics {
				all = append(all, route{op.OperationID, strings.ToUpper(method), path})
			}
		}
	}
	slices.SortFunc(all, func(a, b route) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

type answered struct {
	status int
	text   string
}

// send uses a role's name as the secret.
func send(t *testing.T, r *Replica, method, path string, role identity.Role) answered {
	t.Helper()
	return sendBody(t, r, method, path, "{}", string(role))
}

func sendBody(t *testing.T, r *Replica, method, path, body, secret string) answered {
	t.Helper()
	req, err := http.NewRequestWithContext(waittest.Context(t), method, "http://"+r.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{resp.StatusCode, string(text)}
}

// TestRights calls every route and sends every frame with every role. A new route or frame without
// a row in the table fails it, and so does a row without a route.
func TestRights(t *testing.T) {
	t.Parallel()
	r := withRoles(t)
	rows := map[string]bool{}
	for _, call := range identity.Calls() {
		rows[call] = true
	}
	numbered := strings.NewReplacer("{version}", "1", "{index}", "1", "{", "", "}", "")
	for _, route := range routesOf(t, r) {
		if !rows[route.id] {
			t.Errorf("%s %s (%s) has no row in the table of rights", route.method, route.path, route.id)
		}
		delete(rows, route.id)
		for _, role := range identity.Roles {
			got := send(t, r, route.method, numbered.Replace(route.path), role)
			refused := got.status == http.StatusForbidden
			if want := role.GrantOf(route.id) == identity.None; refused != want || got.status == http.StatusUnauthorized {
				t.Errorf("%s %s by %s: %d %s, expected refused: %v", route.method, route.path, role, got.status, got.text, want)
			}
		}
		if got := send(t, r, route.method, numbered.Replace(route.path), ""); got.status != http.StatusUnauthorized {
			t.Errorf("%s %s without a token: %d %s, expected 401", route.method, route.path, got.status, got.text)
		}
	}
	for _, typ := range wire.RequestTypes() {
		delete(rows, "frame "+string(typ))
	}
	if len(rows) > 0 {
		t.Errorf("rows without a route or frame: %v", rows)
	}
	for _, role := range identity.Roles {
		checkFrames(t, r, role)
	}
}

// checkFrames sends one frame of each type.
func checkFrames(t *testing.T, r *Replica, role identity.Role) {
	t.Helper()
	ctx := waittest.Context(t)
	conn, _, err := websocket.Dial(ctx, "ws://"+r.Addr()+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + string(role)}}, Subprotocols: []string{wire.Protocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	read := func() (m struct{ Type, Code string }) {
		_, data, err := conn.Read(ctx)
		if err == nil {
			err = json.NewDecoder(bytes.NewReader(data)).Decode(&m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := read(); m.Type != "welcome" {
		t.Fatalf("first message is %+v, expected the welcome", m)
	}
	for _, typ := range wire.RequestTypes() {
		fields := map[wire.RequestType]string{
			wire.TypeSubmit: `,"job":{"service":"none","payload":1,"timeout_ms":1000}`,
			wire.TypeCancel: `,"job_id":"0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"`, wire.TypeAttach: `,"job_id":"0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"`,
		}[typ]
		frame := fmt.Sprintf(`{"type":%q,"id":"1"%s}`, typ, fields)
		if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
		m := read()
		refused := m.Code == string(freeslot.CodePermissionDenied)
		if want := role.GrantOf("frame "+string(typ)) == identity.None; refused != want {
			t.Errorf("frame %s by %s: %+v, expected refused: %v", typ, role, m, want)
		}
	}
}

// TestReference writes the table of docs/security.md.
func TestReference(t *testing.T) {
	t.Parallel()
	rows := [][]string{}
	add := func(call, id string) {
		row := []string{"`" + call + "`"}
		for _, role := range identity.Roles {
			row = append(row, string(role.GrantOf(id)))
		}
		rows = append(rows, row)
	}
	for _, typ := range wire.RequestTypes() {
		add("frame "+string(typ), "frame "+string(typ))
	}
	for _, route := range routesOf(t, withRoles(t)) {
		add(route.method+" "+route.path, route.id)
	}
	reference.Check(t, "../security.md", "Calls and roles", "What each role may see or change by a call: `own` is what belongs to the caller's tenant, `all` is "+
		"everything. An empty field means `permission_denied`. Frames are messages of a client's WebSocket.\n\n"+
		reference.RowsTable(append([]string{"call"}, identity.RoleNames()...), rows))
}

// TestScopes: a token with scopes reads the lists, services and documents that they name, and no
// others. A token without scopes reads all.
func TestScopes(t *testing.T) {
	t.Parallel()
	cfg := configured(t)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	var lines strings.Builder
	secrets := map[string]string{}
	for name, scopes := range map[string]identity.Scopes{
		"some":   {Lists: []string{"vip-*"}, Services: []string{"vip-*"}, Documents: []string{"vip-*"}},
		"closed": {Lists: []string{}, Services: []string{}, Documents: []string{}},
		"all":    {},
	} {
		secret, line, err := identity.NewToken(identity.Principal{Name: name, Tenant: "acme", Role: identity.Client, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = secret
		lines.WriteString(line + "\n")
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.TokensFile = file
	r := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	start(t, r)
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	called := 0
	check := func(method, path, body string, reached map[string]bool) {
		t.Helper()
		called++
		for name, want := range reached {
			got := sendBody(t, r, method, path, body, secrets[name])
			if refused := got.status == http.StatusForbidden; refused == want || got.status == http.StatusUnauthorized {
				t.Errorf("%s %s %s by the token %s: %d %s, expected reached: %v", method, path, body, name, got.status, got.text, want)
			}
		}
	}
	vip := map[string]bool{"some": true, "closed": false, "all": true}
	other := map[string]bool{"some": false, "closed": false, "all": true}
	for _, route := range routesOf(t, r) {
		if scope, part := identity.ScopeOf(route.id); scope != "" {
			for name, reached := range map[string]map[string]bool{"vip-1": vip, "deny": other} {
				path := strings.NewReplacer("{"+part+"}", name, "{version}", "1", "{index}", "1").Replace(route.path)
				check(route.method, path, "{}", reached)
			}
		}
	}
	if called < 14 {
		t.Errorf("%d calls were made; want two for each of 7 routes with a scope, or more", called)
	}
	for _, path := range []string{"/v1/list-marks", "/v1/list-reports"} {
		check("POST", path, `{"lists":{"vip-1":{}}}`, vip)
		check("POST", path, `{"lists":{"vip-1":{},"deny":{}}}`, other)
	}
}
