package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestCallerTokens: the printed line identifies the caller with the printed token.
func TestCallerTokens(t *testing.T) {
	t.Parallel()
	run := func(args ...string) (code int, out, text string) {
		var stdout, stderr strings.Builder
		code = run(args, &environment{ctx: context.Background(), in: strings.NewReader(""), out: &stdout, err: &stderr})
		return code, stdout.String(), stderr.String()
	}
	code, secret, text := run("tokens", "new", "ci", "--tenant", "acme", "--role", "tenant-operator", "--expires", "90d", "--list", "vip-*,deny")
	if code != exitOK || len(secret) < 40 || !strings.HasPrefix(secret, "fst_") || !strings.HasPrefix(text, "# A line for tokens_file:\n- {name: ci, role: tenant-operator, tenant: acme, sha256: ") {
		t.Fatalf("exit code %d, %q, %q, expected a token and its line", code, secret, text)
	}
	if want := "lists: [vip-*, deny], services: [], documents: []}\n"; !strings.HasSuffix(text, want) {
		t.Errorf("%q does not end with %q: what is not given is closed", text, want)
	}
	if _, _, text := run("tokens", "new", "root", "--tenant", "ops", "--role", "operator"); strings.Contains(text, "lists") {
		t.Errorf("%q has scopes, expected none for an operator", text)
	}
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, text := run("tokens", "check", file); code != exitOK || out != file+" has 1 token\n" {
		t.Errorf("exit code %d, %q, %q, expected 1 token", code, out, text)
	}
	if count, problems := identity.CheckTokens([]byte(text)); count != 1 || problems != nil {
		t.Errorf("%q has %d tokens, %v, expected one", text, count, problems)
	}
	if err := os.WriteFile(file, []byte(text+"- {name: a}\n- b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, text = run("tokens", "check", file)
	if code != exitFailure || !strings.Contains(text, file+": line 3: role is \"\"") || !strings.Contains(text, file+": line 4: is not a mapping") || !strings.Contains(text, "has 2 problems") {
		t.Errorf("exit code %d, %q, expected both problems", code, text)
	}
	if code, _, text := run("tokens", "new", "ci", "--tenant", "acme", "--role", "king"); code != exitUsage || !strings.Contains(text, `role is "king"`) {
		t.Errorf("exit code %d, %q, expected the role to be refused", code, text)
	}
}

// TestTokensList: an admin lists tokens, and every caller sees who it is.
func TestTokensList(t *testing.T) {
	t.Parallel()
	l := start(
		t, config.Token{Token: "boss", Tenant: "ops", Role: identity.Admin}, config.Token{Token: "ci", Tenant: "acme", Role: identity.Client},
	)
	l.ctl(t, "whoami", "--token", "ci").expect(t, exitOK, "NAME  ROLE    TENANT  FOR  EXPIRES", "-     client  acme    -    -")
	l.ctl(t, "whoami", "--token", "ci", "-o", "json").expect(t, exitOK, `"role": "client"`)
	l.ctl(t, "tokens", "ls", "--token", "ci").expect(t, exitFailure, "permission_denied")
	l.ctl(t, "tokens", "ls", "--token", "boss").expect(t, exitOK, "SEEN", "-     tokens  client  acme    -    -        20", "-     tokens  admin   ops")
	out := l.ctl(t, "tokens", "ls", "--token", "boss", "-o", "json").expect(t, exitOK).out
	if strings.Count(out, `"source": "tokens"`) != 2 || strings.Contains(out, "boss") {
		t.Errorf("the list is %s; want two tokens without secrets", out)
	}
}

func TestScopeText(t *testing.T) {
	t.Parallel()
	for want, scopes := range map[string]map[string][]string{
		"": nil, "lists vip-*, deny; services none": {"services": {}, "lists": {"vip-*", "deny"}},
	} {
		if got := scopeText(scopes); got != want {
			t.Errorf("scopes %v are %q; want %q", scopes, got, want)
		}
	}
}

func TestTokensExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/tokens.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if count, problems := identity.CheckTokens(text); count != 4 || problems != nil {
		t.Errorf("the example has %d tokens, %v, expected 4 and no problem", count, problems)
	}
}

// TestTokenCommand: the command's output is the token. A token that is given comes first.
func TestTokenCommand(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "sign-in")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho token-of-$1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cmds        commands
		token, fail string
	}{
		{commands{TokenCommand: script + " anna"}, "token-of-anna", ""},
		{commands{TokenCommand: script + " anna", Token: "given"}, "given", ""},
		{commands{TokenCommand: "false"}, "", "get a token by false: exit status 1"},
		{commands{TokenCommand: "true"}, "", "get a token by true: it printed nothing"},
	} {
		c.cmds.Server = "http://127.0.0.1:7480"
		a, err := c.cmds.app(&environment{ctx: t.Context(), in: strings.NewReader(""), err: os.Stderr})
		if c.fail != "" {
			if err == nil || err.Error() != c.fail {
				t.Errorf("command %q: %v, expected %s", c.cmds.TokenCommand, err, c.fail)
			}
			continue
		}
		if err != nil || a.token != c.token {
			t.Errorf("command %q: %v, expected the token %s", c.cmds.TokenCommand, err, c.token)
		}
	}
}
