package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestTokensReader: a change of the configuration file, or of a token's own file, is seen. A
// configuration that cannot be used is an error.
func TestTokensReader(t *testing.T) {
	t.Parallel()
	file, secret := filepath.Join(t.TempDir(), "scheduler.yaml"), filepath.Join(t.TempDir(), "token")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, "first\n")
	write(file, "tokens: [{token_file: "+secret+", tenant: acme}]\n")
	opts := config.Options{File: file, Environ: []string{}}
	cfg, err := config.LoadReplica(opts)
	if err != nil {
		t.Fatal(err)
	}
	read := config.TokensReader(cfg.Tokens, opts)
	expect := func(want ...string) {
		t.Helper()
		tokens, err := read()
		var got []string
		for _, token := range tokens {
			got = append(got, token.Token)
		}
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Fatalf("the tokens are %q, %v, expected %q", got, err, want)
		}
	}
	expect("first")
	write(secret, "second\n")
	expect("second")
	write(file, "tokens: [{token_file: "+secret+", tenant: acme}, {token: third, tenant: other}]\n")
	expect("second", "third")
	write(file, "tokens: [{token: third, tenant: other, role: king}]\n")
	if _, err := read(); err == nil || !strings.Contains(err.Error(), "tokens[0].role") {
		t.Errorf("a bad role is %v, expected an error", err)
	}
	write(file, "tokens: [{token: third, tenant: other}]\n")
	expect("third")
}
