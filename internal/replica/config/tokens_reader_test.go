package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestTokensReader: a change of the configuration file, or of a token's own file, is seen. Whatever
// else is wrong there, new tokens are taken and removed ones dropped.
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
	fromFile := "{token_file: " + secret + ", tenant: acme}"
	write(file, "tokens: ["+fromFile+"]\n")
	opts := config.Options{File: file, Environ: []string{}}
	cfg, err := config.LoadReplica(opts)
	if err != nil {
		t.Fatal(err)
	}
	read := config.TokensReader(cfg.Tokens, opts)
	expect := func(problem string, want ...string) {
		t.Helper()
		tokens, problems, err := read()
		var got []string
		for _, token := range tokens {
			got = append(got, token.Token)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the tokens are %q, %v; want %q", got, err, want)
		}
		if text := problems.Error(); (problem == "") != (text == "") || !strings.Contains(text, problem) {
			t.Errorf("the problems are %q; want %q", text, problem)
		}
	}
	expect("", "first")
	write(secret, "second\n")
	expect("", "second")
	write(file, "tokens: ["+fromFile+", {token: third, tenant: other}]\n")
	expect("", "second", "third")
	write(file, "tokens: ["+fromFile+", {token: third, tenant: other, role: king}]\n")
	expect(`tokens[1].role is "king"`, "second")
	write(file, "listen: 5\ntokens: [{token: fourth, tenant: other}, 7, {token: fourth, tenant: acme}]\n")
	expect("listen is 5", "fourth")

	// While a token's own file cannot be read, its last secret counts.
	write(file, "waiting_limit: -1\ntokens: ["+fromFile+"]\n")
	expect("waiting_limit is -1", "second")
	write(secret, "")
	expect("tokens[0].token_file is ", "second")
	write(file, "tokens: ["+fromFile+"] \n")
	expect("tokens[0].token_file is ", "second")
	write(secret, "fifth\n")
	expect("", "fifth")

	for _, text := range []string{"tokens: [\n", "tokens: none\n"} {
		write(file, text)
		if tokens, _, err := read(); err == nil {
			t.Errorf("%q has the tokens %v; want an error", text, tokens)
		}
	}
	write(file, "tokens: [{token: third, tenant: other}]\n")
	expect("", "third")
}
