package replica

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/gateway"
	"github.com/freeslot/freeslot/internal/identity"
)

// TestTokensRunOut: a replica names the callers and nodes whose tokens end soon, without a secret
// or a hash, until a newer token is beside the old one.
func TestTokensRunOut(t *testing.T) {
	t.Parallel()
	cfg, dir := configured(t), t.TempDir()
	cfg.TokensFile, cfg.Gateway.TokensFile = filepath.Join(dir, "tokens.yaml"), filepath.Join(dir, "nodes.yaml")
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	caller := func(name string, expires time.Time) (secret, line string) {
		t.Helper()
		secret, line, err := identity.NewToken(identity.Principal{Name: name, Tenant: "acme", Role: identity.Operator, Expires: expires})
		if err != nil {
			t.Fatal(err)
		}
		return secret, line
	}
	node := func(expires time.Time) string {
		t.Helper()
		_, digest := gateway.NewSecret()
		line, err := (&gateway.Token{Name: "gpu", Digest: digest, Nodes: []string{"gpu-*"}, Expires: expires}).Line()
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	write := func(file string, lines ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret, boss := caller("boss", time.Time{})
	_, old := caller("ci", soon)
	_, renewed := caller("ci", soon.AddDate(1, 0, 0))
	oldNode := node(soon.Add(time.Hour))
	write(cfg.TokensFile, boss, old)
	write(cfg.Gateway.TokensFile, oldNode)
	r := began(t, cfg)
	untilFoundAs(t, r, secret, "tokens.expiring", func(f *finding.Finding) bool {
		return f != nil && f.Text == "2 owners of tokens have none that lasts for another 336h" && slices.Equal(f.Names, []string{
			"ci of tenant acme, until " + soon.Format(time.RFC3339),
			"gpu of gateway.tokens_file, until " + soon.Add(time.Hour).Format(time.RFC3339),
		})
	})
	write(cfg.TokensFile, boss, old, renewed)
	write(cfg.Gateway.TokensFile, oldNode, node(time.Time{}))
	untilFoundAs(t, r, secret, "tokens.expiring", gone)
}

// TestRunOut: what counts is the token of an owner that lasts longest; at most ten are named, those
// that end first.
func TestRunOut(t *testing.T) {
	t.Parallel()
	now, never := time.Now(), time.Time{}
	var all []expiring
	for i := range 12 {
		all = append(all, expiring{fmt.Sprintf("many%02d", i), now.Add(time.Duration(i) * time.Minute)})
	}
	all = append(all, expiring{"ended", now.Add(-time.Hour)}, expiring{"later", now.Add(time.Hour + time.Second)})
	for _, ends := range [][]time.Time{{never, now}, {now, never}, {now, now.Add(2 * time.Hour)}, {now.Add(2 * time.Hour), now}} {
		for _, end := range ends {
			all = append(all, expiring{fmt.Sprint("changes", ends), end})
		}
	}
	found := runOut(all, now, time.Hour)
	const want = "warning tokens.expiring: 13 owners of tokens have none that lasts for another 1h"
	if said(found) != want || len(found[0].Names) != finding.MaxNames || !strings.HasPrefix(found[0].Names[0], "ended, until ") {
		t.Errorf("found %s, %q; want %s, and ten names from the first end on", said(found), found[0].Names, want)
	}
	if want := now.Add(-2 * time.Hour).UnixMilli(); found[0].SinceMS != want {
		t.Errorf("since %d; want %d, an hour before the first end", found[0].SinceMS, want)
	}
}
