package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// issuer is an OpenID provider, and a command that prints one of its tokens.
type issuer struct {
	t *testing.T
	*mockoidc.MockOIDC
	token, asked string // the files of the token that the command prints, and of its calls
}

func provide(t *testing.T) *issuer {
	t.Helper()
	m, err := mockoidc.Run()
	must(t, err)
	t.Cleanup(func() { _ = m.Shutdown() })
	_, err = m.Keypair.KeyID() // later calls would race to set it
	must(t, err)
	return &issuer{t: t, MockOIDC: m, token: filepath.Join(t.TempDir(), "token"), asked: filepath.Join(t.TempDir(), "asked")}
}

func (i *issuer) configure(cfg *config.Replica) {
	cfg.Auth.OIDC = config.OIDC{
		Issuer: i.Issuer(), Audience: "freeslot", Algorithms: []string{"RS256"},
		Claims: config.OIDCClaims{Name: "sub", Tenant: "tenant", Role: "role"}, Roles: map[string]identity.Role{"devs": identity.Client},
	}
}

// next makes the command print a token that expires after this time.
func (i *issuer) next(life time.Duration) {
	i.t.Helper()
	token, err := i.Keypair.SignJWT(jwt.MapClaims{
		"iss": i.Issuer(), "aud": "freeslot", "sub": "anna", "tenant": "acme", "role": "devs", "exp": time.Now().Add(life).Unix(),
	})
	must(i.t, err)
	must(i.t, os.WriteFile(i.token+".new", []byte(token), 0o600))
	must(i.t, os.Rename(i.token+".new", i.token))
}

func (i *issuer) command() string {
	i.t.Helper()
	script := filepath.Join(i.t.TempDir(), "sign-in")
	must(i.t, os.WriteFile(script, []byte("#!/bin/sh\necho asked >> "+i.asked+"\ncat "+i.token+"\n"), 0o700))
	return script
}

func (i *issuer) times() int {
	text, _ := os.ReadFile(i.asked)
	return strings.Count(string(text), "asked")
}

// TestTokenEndsMidSession: a client that waits for a result over the WebSocket comes back with a
// fresh token, and gets the result: asked by goaway while its token is still good, and at the
// latest when the token has expired.
func TestTokenEndsMidSession(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{
		"asked to go away": 33 * time.Second, // 30 s before its end
		"expired":          15 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := provide(t)
			l := startWith(t, i.configure)
			i.next(life)
			ended := make(chan result)
			command := i.command()
			go func() {
				ended <- l.ctl(t, "submit", "block", "--wait", "--token-command", command, "--source", "en", "--target", "de")
			}()
			soon(t, l.started, "the job begins")
			i.next(time.Hour)
			waittest.Until(t, "the client to ask for another token", func() bool { return i.times() > 1 })
			close(l.release)
			if got := soon(t, ended, "the result").expect(t, exitOK, "released"); strings.Contains(got.err, "unauthenticated") {
				t.Errorf("the client says %s; want no refusal", got.err)
			}
			if life > 30*time.Second && i.times() != 2 {
				t.Errorf("the client asked %d times for a token; want two", i.times())
			}
		})
	}
}
