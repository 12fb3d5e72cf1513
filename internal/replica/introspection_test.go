package replica

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/gateway"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestTokensShown: an admin sees all tokens of a replica and what is wrong with their files, and no
// secret or hash. Every caller sees itself.
func TestTokensShown(t *testing.T) {
	t.Parallel()
	cfg := configured(t)
	cfg.TokensFile, cfg.Gateway.TokensFile = filepath.Join(t.TempDir(), "tokens.yaml"), filepath.Join(t.TempDir(), "nodes.yaml")
	cfg.Tokens = []config.Token{{Token: "boss-secret", Tenant: "ops", Role: identity.Admin}}
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	secret, line, err := identity.NewToken(identity.Principal{
		Name: "ci", Tenant: "acme", Role: identity.Client, Expires: expires, Scopes: identity.Scopes{Lists: []string{"vip-*"}, Services: []string{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	nodeSecret, digest := gateway.NewSecret()
	node := gateway.Token{Name: "ci", Digest: digest, Nodes: []string{"gpu-*"}}
	nodeLine, err := node.Line()
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(cfg.TokensFile, line+"\n")
	write(cfg.Gateway.TokensFile, nodeLine+"\n")
	r := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	start(t, r)
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	read := func(path, secret string, into any) string {
		t.Helper()
		got := sendBody(t, r, http.MethodGet, path, "", secret)
		if err := json.Unmarshal([]byte(got.text), into); got.status != http.StatusOK || err != nil {
			t.Fatalf("%s answers %d %s, %v; want a page", path, got.status, got.text, err)
		}
		return got.text
	}
	scopes := map[string][]string{"lists": {"vip-*"}, "services": {}}
	var who api.Whoami
	read("/v1/whoami", secret, &who)
	want := api.Whoami{Name: "ci", Role: identity.Client, Tenant: "acme", Scopes: scopes, ExpiresMS: expires.UnixMilli()}
	if diff := cmp.Diff(want, who); diff != "" {
		t.Errorf("a client is (-want +got)\n%s", diff)
	}

	write(cfg.TokensFile, line+"\n- {name: x}\n")
	var first, second api.TokenPage
	var text string
	waittest.Until(t, "the fault in the file to be shown", func() bool {
		first = api.TokenPage{}
		text = read("/v1/tokens?limit=2", "boss-secret", &first)
		return len(first.Problems) == 1 && first.Problems[0].Source == "tokens_file" && strings.HasPrefix(first.Problems[0].Problem, "line 2: role")
	})
	text += read("/v1/tokens?limit=2&cursor="+first.Cursor, "boss-secret", &second)
	if len(first.Tokens) != 2 || first.Cursor == "" || second.Cursor != "" || second.Problems != nil {
		t.Fatalf("the pages are %+v and %+v; want two tokens with a problem, and then the last", first, second)
	}
	hash := func(line string) string { return strings.Split(strings.Split(line, "sha256: ")[1], ",")[0] }
	for what, hidden := range map[string]string{
		"a secret": secret, "a hash": hash(line), "a node's secret": nodeSecret, "a node's hash": hash(nodeLine),
		"a secret of the configuration": "boss-secret",
	} {
		if strings.Contains(text, hidden) {
			t.Errorf("the pages have %s in them: %s", what, text)
		}
	}
	all := append(first.Tokens, second.Tokens...)
	for i := range all {
		if seen := all[i].LastSeenMS != 0; seen != (all[i].Source != api.GatewaySource) {
			t.Errorf("%s of %s was seen: %v; want callers alone", all[i].Name, all[i].Source, seen)
		}
		all[i].LastSeenMS = 0
	}
	if diff := cmp.Diff([]api.TokenStatus{
		{Source: "tokens", Tenant: "ops", Role: identity.Admin},
		{Source: "gateway.tokens_file", Name: "ci", Nodes: []string{"gpu-*"}},
		{Source: "tokens_file", Name: "ci", Role: identity.Client, Tenant: "acme", Scopes: scopes, ExpiresMS: expires.UnixMilli()},
	}, all); diff != "" {
		t.Errorf("the tokens are (-want +got)\n%s", diff)
	}
	for path, status := range map[string]int{"/v1/tokens?cursor=ci": http.StatusBadRequest, "/v1/tokens?cursor=ci/2": http.StatusOK} {
		if got := sendBody(t, r, http.MethodGet, path, "", "boss-secret"); got.status != status {
			t.Errorf("%s answers %d %s; want %d", path, got.status, got.text, status)
		}
	}
}
