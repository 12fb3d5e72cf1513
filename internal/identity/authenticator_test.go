package identity_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// token makes a token and its line of the file.
func token(t *testing.T, p identity.Principal) (secret, line string) {
	t.Helper()
	secret, line, err := identity.NewToken(p)
	if err != nil {
		t.Fatal(err)
	}
	return secret, line + "\n"
}

func write(t *testing.T, file string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// who returns the caller with a secret.
func who(t *testing.T, a *identity.Authenticator, secret string) (identity.Principal, bool) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	p, err := a.Authenticate(r)
	if err != nil && freeslot.CodeOf(err) != freeslot.CodeUnauthenticated {
		t.Fatal(err)
	}
	return p, err == nil
}

// known checks within two seconds of fake time which secrets are known.
func known(t *testing.T, a *identity.Authenticator, want map[string]bool) {
	t.Helper()
	time.Sleep(2 * time.Second)
	for secret, ok := range want {
		if _, got := who(t, a, secret); got != ok {
			t.Fatalf("the secret %.8s… is known: %v, expected %v", secret, got, ok)
		}
	}
}

func started(t *testing.T, cfg identity.Config) *identity.Authenticator {
	t.Helper()
	cfg.Log = zap.NewNop()
	a, err := identity.New(cfg)
	if err == nil {
		err = a.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestRotation: two lines of one name work until one of them is removed.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		ci := identity.Principal{Name: "ci", Tenant: "acme", Role: identity.Client}
		before, first := token(t, ci)
		after, second := token(t, ci)
		write(t, file, first)
		a := started(t, identity.Config{TokensFile: file})
		defer a.Stop(t.Context())
		known(t, a, map[string]bool{before: true, after: false})
		write(t, file, first, second)
		known(t, a, map[string]bool{before: true, after: true})
		session, _ := who(t, a, before)
		changed := a.Changed()
		write(t, file, second)
		known(t, a, map[string]bool{before: false, after: true})
		select {
		case <-changed:
		default:
			t.Error("the removal was not told")
		}
		if a.Holds(&session) {
			t.Error("a caller whose token was removed holds, expected that it does not")
		}
		if p, _ := who(t, a, after); p.Name != "ci" || p.Tenant != "acme" || p.Role != identity.Client || !a.Holds(&p) {
			t.Errorf("the caller is %+v, expected ci, a client of acme that holds", p)
		}
	})
}

// TestExpiry: a token that expires is told like one that was removed.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		short, line := token(t, identity.Principal{
			Name: "short", Tenant: "acme", Role: identity.Client, Expires: time.Now().Add(10 * time.Second),
		})
		write(t, file, line)
		a := started(t, identity.Config{TokensFile: file})
		defer a.Stop(t.Context())
		known(t, a, map[string]bool{short: true})
		changed := a.Changed()
		time.Sleep(10 * time.Second)
		known(t, a, map[string]bool{short: false})
		select {
		case <-changed:
		default:
			t.Error("the expiry was not told")
		}
	})
}

// TestAdminOnce: once an admin's token was read, operators are no admins until a restart, even if
// its line is damaged or removed.
func TestAdminOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		root, rootLine := token(t, identity.Principal{Name: "root", Tenant: "ops", Role: identity.Operator})
		_, adminLine := token(t, identity.Principal{Name: "boss", Tenant: "ops", Role: identity.Admin})
		write(t, file, rootLine)
		a := started(t, identity.Config{TokensFile: file, OperatorsAreAdmins: true})
		defer a.Stop(t.Context())
		role := func(want identity.Role) {
			t.Helper()
			time.Sleep(2 * time.Second)
			if p, _ := who(t, a, root); p.Role != want {
				t.Fatalf("root has the role %q, expected %s", p.Role, want)
			}
		}
		role(identity.Admin)
		session, _ := who(t, a, root)
		write(t, file, rootLine, adminLine)
		role(identity.Operator)
		if a.Holds(&session) {
			t.Error("a session keeps the rights of an admin")
		}
		write(t, file, rootLine, strings.Replace(adminLine, "admin", "admim", 1))
		role(identity.Operator)
		if ok, detail := a.Ready(); !ok || !strings.Contains(detail, `tokens_file line 2: role is "admim", expected viewer, client`) {
			t.Errorf("readiness is %v, %q, expected true with the slip", ok, detail)
		}
		write(t, file, rootLine)
		role(identity.Operator)
	})
}

// TestInlineReadAgain: tokens of the configuration are read again like those of the file, and keep
// working while they cannot be read. A problem is told, and keeps no removed token.
func TestInlineReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var secret, problem atomic.Value // secret is empty if the tokens cannot be read
		secret.Store("first-secret")
		problem.Store("")
		a := started(t, identity.Config{Inline: func() (all []identity.Credential, problems []error, err error) {
			now := secret.Load().(string)
			if now == "" {
				return nil, nil, os.ErrNotExist
			}
			if text := problem.Load().(string); text != "" {
				problems = append(problems, errors.New(text))
			}
			who := identity.Principal{Tenant: "acme", Role: identity.Client}
			return []identity.Credential{{Token: now, Principal: who}}, problems, nil
		}})
		defer a.Stop(t.Context())
		known(t, a, map[string]bool{"first-secret": true, "second-secret": false})
		secret.Store("second-secret")
		known(t, a, map[string]bool{"first-secret": false, "second-secret": true})
		secret.Store("")
		known(t, a, map[string]bool{"second-secret": true})
		if _, detail := a.Ready(); detail != "degraded: tokens: file does not exist" {
			t.Errorf("readiness says %q, expected the failure", detail)
		}
		secret.Store("second-secret")
		known(t, a, map[string]bool{"second-secret": true})
		if _, detail := a.Ready(); detail != "" {
			t.Errorf("readiness says %q, expected nothing", detail)
		}
		problem.Store("tokens[1].role is \"king\": {\n- x")
		secret.Store("third-secret")
		known(t, a, map[string]bool{"second-secret": false, "third-secret": true})
		if _, detail := a.Ready(); detail != "degraded: tokens: "+problem.Load().(string) {
			t.Errorf("readiness says %q; want the problem", detail)
		}
	})
}

func TestTokensRefused(t *testing.T) {
	t.Parallel()
	_, good := token(t, identity.Principal{Name: "a", Tenant: "acme", Role: identity.Client})
	for text, want := range map[string]string{
		strings.Replace(good, "name: a", "name: a b", 1):                       "line 1: name has ' '",
		strings.Replace(good, "role: client", "role: king", 1):                 `line 1: role is "king", expected viewer, client`,
		strings.Replace(good, "tenant: acme", "tenant: ''", 1):                 "line 1: tenant is 0 characters",
		strings.Replace(good, "sha256: ", "sha256: fst_secret", 1):             "line 1: sha256 is 74 characters long",
		strings.Replace(good, "name: a", "name: a, expires: soon", 1):          "line 1: parsing time",
		strings.Replace(good, "name: a", "name: a, expires: 0001-01-01", 1):    "line 1: expires is 0001-01-01, expected a time",
		strings.Replace(good, "name: a", "name: a, nodes: [gpu]", 1):           "line 1: nodes is unknown, expected name, role",
		strings.Replace(good, "name: a", "name: a, lists: ", 1):                "line 1: lists has no value",
		strings.Replace(good, "name: a", "name: a, lists: ['a b']", 1):         "line 1: lists has \"a b\"",
		strings.Replace(good, "role: client", "role: viewer, services: []", 1): "line 1: services is set for the role viewer",
		good + strings.Replace(good, "name: a", "name: b", 1):                  "line 2: sha256 is also in another line",
		strings.Replace(good, "role: client", "role: client, role: viewer", 1): "already defined",
	} {
		count, problems := identity.CheckTokens([]byte(text))
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), want) || strings.Contains(problems[0].Error(), "fst_secret") {
			t.Errorf("%s: %d tokens, %v, expected a problem with %q", text, count, problems, want)
		}
	}
	if count, problems := identity.CheckTokens([]byte(good)); count != 1 || problems != nil {
		t.Errorf("%s: %d tokens, %v, expected 1 and no problem", good, count, problems)
	}
}
