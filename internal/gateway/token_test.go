package gateway_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway"
)

// tokenLine is a line of a tokens file for the secret. rest follows behind name and hash.
func tokenLine(name, secret, rest string) string {
	digest := sha256.Sum256([]byte(secret))
	return fmt.Sprintf("- {name: %s, sha256: %s, %s}\n", name, hex.EncodeToString(digest[:]), rest)
}

func writeTokens(t *testing.T, file string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openTokens(t *testing.T, lines ...string) (*gateway.Tokens, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	writeTokens(t, file, lines...)
	return gateway.OpenTokens(file, zap.NewNop(), nil)
}

func TestTokenNames(t *testing.T) {
	for _, one := range []struct {
		pattern, node string
		want          bool
	}{
		{"gpu-1", "gpu-1", true},
		{"gpu-1", "gpu-10", false},
		{"gpu-1", "xgpu-1", false},
		{"gpu-1", "GPU-1", false},
		{"gpu-*", "gpu-", true},
		{"gpu-*", "gpu-1", true},
		{"gpu-*", "cpu-1", false},
		{"*", "anything", true},
		{"*-eu", "gpu-eu", true},
		{"*-eu", "gpu-eu-1", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "acb", false},
		{"*b*b*", "ab", false},
		{"*b*b*", "abxb1", true},
		{"g?u", "gpu", false},
	} {
		token := gateway.Token{Nodes: []string{"other", one.pattern}}
		if got := token.Names(one.node); got != one.want {
			t.Errorf("token for %q names %q: %v, want %v", one.pattern, one.node, got, one.want)
		}
	}
}

func TestTokenCheck(t *testing.T) {
	tokens, err := openTokens(t, tokenLine("gpu-1", "s", `nodes: [gpu-1], services: [tts, "asr*"], pools: [eu], labels: {zone: [eu-1, "eu-2*"]}, capabilities: [de, "en*"], slots: 16`))
	if err != nil {
		t.Fatal(err)
	}
	token, ok := tokens.Find("s")
	if !ok {
		t.Fatal("the token was not found")
	}
	for name, one := range map[string]struct {
		change func(*freeslot.Node)
		field  string // "" is allowed
	}{
		"as allowed":          {func(*freeslot.Node) {}, ""},
		"fewer slots":         {func(n *freeslot.Node) { n.MaxConcurrency = 1 }, ""},
		"no services":         {func(n *freeslot.Node) { n.Services = nil }, ""},
		"pattern of services": {func(n *freeslot.Node) { n.Services = []freeslot.Service{{Name: "asr-2"}} }, ""},
		"pattern of a label":  {func(n *freeslot.Node) { n.Labels["zone"] = "eu-2b" }, ""},
		"language by case":    {func(n *freeslot.Node) { n.Languages.TTS = []string{"EN-gb", "DE"} }, ""},
		"feature that is off": {func(n *freeslot.Node) { n.Features = map[string]bool{"avx": false} }, ""},
		"a feature":           {func(n *freeslot.Node) { n.Features = map[string]bool{"avx": true} }, "profile.features_supported"},
		"another service":     {func(n *freeslot.Node) { n.Services = []freeslot.Service{{Name: "tts"}, {Name: "llm"}} }, "profile.installed_services"},
		"another pool":        {func(n *freeslot.Node) { n.Pools = []string{"eu", "us"} }, "profile.pool_ids"},
		"another label":       {func(n *freeslot.Node) { n.Labels["rack"] = "1" }, "profile.labels"},
		"another value":       {func(n *freeslot.Node) { n.Labels["zone"] = "eu-11" }, "profile.labels.zone"},
		"understands more":    {func(n *freeslot.Node) { n.Languages.ASR = []string{"fr"} }, "profile.capabilities.asr_languages"},
		"speaks more":         {func(n *freeslot.Node) { n.Languages.TTS = []string{"fr"} }, "profile.capabilities.tts_languages"},
		"translates more":     {func(n *freeslot.Node) { n.Languages.Semantic = []string{"fr"} }, "profile.capabilities.semantic_languages"},
		"more slots":          {func(n *freeslot.Node) { n.MaxConcurrency = 17 }, "profile.max_concurrency"},
	} {
		t.Run(name, func(t *testing.T) {
			node := freeslot.Node{
				ID: "gpu-1", MaxConcurrency: 16, Services: []freeslot.Service{{Name: "tts", Version: "2"}}, Pools: []string{"eu"},
				Labels: map[string]string{"zone": "eu-1"}, Languages: freeslot.Languages{ASR: []string{"de"}, TTS: []string{"en-US"}},
			}
			one.change(&node)
			err := token.Check(&node)
			if one.field == "" && err != nil || one.field != "" && (err == nil || err.Code != freeslot.CodePermissionDenied || err.Field != one.field) {
				t.Fatalf("check is %v, want field %q", err, one.field)
			}
			if err != nil && !strings.HasPrefix(err.Message, one.field+" ") {
				t.Errorf("message %q does not begin with the field", err.Message)
			}
		})
	}
	free := gateway.Token{Name: "free"}
	everything := freeslot.Node{
		MaxConcurrency: 1024, Services: []freeslot.Service{{Name: "x"}}, Pools: []string{"p"}, Labels: map[string]string{"a": "b"},
		Languages: freeslot.Languages{ASR: []string{"fr"}}, Features: map[string]bool{"f": true},
	}
	if err := free.Check(&everything); err != nil {
		t.Errorf("a token without limits: %v", err)
	}
	everything.MaxConcurrency++
	if err := free.Check(&everything); err == nil {
		t.Error("a token without limits allows more slots than a session carries")
	}
}

func TestTokensRefused(t *testing.T) {
	good := strings.Repeat("ab", 32)
	many := func(n int) string { return "[" + strings.Repeat("a, ", n-1) + "a]" }
	for name, one := range map[string]struct{ text, want string }{
		"no list":           {"name: x", "is not a sequence"},
		"no mapping":        {"- x", "line 1: is not a mapping"},
		"two documents":     {"- {name: a, sha256: " + good + ", nodes: [a]}\n---\n[]", "more than one"},
		"no YAML":           {"- {name: [", "line "},
		"unknown key":       {"\n- {name: a, sha256: " + good + ", nodes: [a], slot: 3}", "line 2: slot is unknown, expected name, "},
		"key twice":         {"- {name: a, name: b, sha256: " + good + ", nodes: [a]}", "already defined"},
		"no name":           {"- {sha256: " + good + ", nodes: [a]}", "line 1: name is 0 characters"},
		"bad name":          {"- {name: a b, sha256: " + good + ", nodes: [a]}", "name has ' '"},
		"no hash":           {"- {name: a, nodes: [a]}", "sha256 is 0 characters"},
		"secret for a hash": {"- {name: a, sha256: fsn_secret, nodes: [a]}", "sha256 is 10 characters long, expected the SHA-256"},
		"no nodes":          {"- {name: a, sha256: " + good + "}", "nodes is empty"},
		"empty nodes":       {"- {name: a, sha256: " + good + ", nodes: []}", "nodes has no value"},
		"bad node":          {"- {name: a, sha256: " + good + ", nodes: ['a:b']}", `nodes has "a:b"`},
		"many nodes":        {"- {name: a, sha256: " + good + ", nodes: " + many(65) + "}", "nodes has 65 entries, expected at most 64"},
		"one node for many": {"- {name: a, sha256: " + good + ", nodes: a}", "cannot unmarshal"},
		"empty limit":       {"- {name: a, sha256: " + good + ", nodes: [a], services: []}", "services has no value"},
		"null limit":        {"- {name: a, sha256: " + good + ", nodes: [a], pools: }", "pools has no value"},
		"label, no values":  {"- {name: a, sha256: " + good + ", nodes: [a], labels: {zone: []}}", "labels.zone has no values"},
		"bad expires":       {"- {name: a, sha256: " + good + ", nodes: [a], expires: soon}", "line 1: "},
		"zero expires":      {"- {name: a, sha256: " + good + ", nodes: [a], expires: 0001-01-01}", "expires is 0001-01-01, expected a time"},
		"many slots":        {"- {name: a, sha256: " + good + ", nodes: [a], slots: 1025}", "slots is 1025, expected 1 to 1024"},
		"hash twice":        {"- {name: a, sha256: " + good + ", nodes: [a]}\n- {name: b, sha256: " + good + ", nodes: [a]}", "line 2: sha256 is also in another line"},
		"too large":         {strings.Repeat("#", 8<<20+1), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openTokens(t, one.text)
			if err == nil || !strings.Contains(err.Error(), one.want) {
				t.Fatalf("error is %v, want one with %q", err, one.want)
			}
			if strings.Contains(err.Error(), "fsn_secret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error is %q, with a secret or several lines", err)
			}
		})
	}
	for _, empty := range []string{"", "# nothing yet\n", "[]"} {
		if tokens, err := openTokens(t, empty); err != nil || tokens.Len() != 0 {
			t.Errorf("file %q: %v", empty, err)
		}
	}
	_, err := gateway.OpenTokens(filepath.Join(t.TempDir(), "none"), zap.NewNop(), nil)
	if err == nil || !strings.HasSuffix(err.Error(), "none: no such file or directory") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestTokenOfAnotherDoor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	writeTokens(t, file, tokenLine("a", "of a client", "nodes: [a]"))
	client := sha256.Sum256([]byte("of a client"))
	_, err := gateway.OpenTokens(file, zap.NewNop(), func(digest [sha256.Size]byte) bool { return digest == client })
	if err == nil || !strings.Contains(err.Error(), "line 1: the token a also opens another door") {
		t.Fatalf("error is %v", err)
	}
}

func TestTokenLine(t *testing.T) {
	secret, digest := gateway.NewSecret()
	if again, _ := gateway.NewSecret(); !strings.HasPrefix(secret, "fsn_") || len(secret) != 47 || secret == again {
		t.Fatalf("secrets %q and %q, expected two of 47 characters", secret, again)
	}
	for _, want := range []gateway.Token{
		{Name: "gpu-7", Digest: digest, Nodes: []string{"gpu-7"}},
		{
			Name: "1", Digest: digest, Nodes: []string{"null", "*"}, Expires: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC),
			Services: []string{"tts", "asr*"}, Pools: []string{"yes"}, Labels: map[string][]string{"zone": {"eu-1", "a: b, {c}"}, "true": {"1"}},
			Capabilities: []string{"no", "zh-*"}, Slots: 16,
		},
	} {
		line, err := want.Line()
		if err != nil || strings.Contains(line, "\n") || !strings.HasPrefix(line, "- {name: ") {
			t.Fatalf("line %q: %v", line, err)
		}
		tokens, err := openTokens(t, line)
		if err != nil {
			t.Fatalf("%s: %v; want no error", line, err)
		}
		got, ok := tokens.Find(secret)
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("%s is read as another token: %s", line, diff)
		}
	}
	bad := gateway.Token{Name: "gpu-7", Nodes: []string{"a b"}}
	if line, err := bad.Line(); err == nil {
		t.Errorf("a bad pattern makes the line %s", line)
	}
}

func TestTokensChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		a, b := tokenLine("a", "sa", "nodes: [a]"), tokenLine("b", "sb", "nodes: [b]")
		writeTokens(t, file, a)
		core, logged := observer.New(zap.InfoLevel)
		tokens, err := gateway.OpenTokens(file, zap.New(core), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := tokens.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer tokens.Stop(t.Context())
		// known takes what the file says within two seconds, and is whether a, b hold their nodes.
		known := func(wantA, wantB bool) {
			t.Helper()
			time.Sleep(2 * time.Second)
			_, foundA := tokens.Find("sa")
			_, foundB := tokens.Find("sb")
			if foundA != wantA || foundB != wantB {
				t.Fatalf("a and b are known: %v, %v; want %v, %v", foundA, foundB, wantA, wantB)
			}
			if digest := sha256.Sum256([]byte("sa")); tokens.Holds(digest, "a", nil) != wantA || tokens.Holds(digest, "b", nil) {
				t.Fatal("a token does not hold its node, or holds another")
			}
		}
		changed := func(want bool, since <-chan struct{}) {
			t.Helper()
			select {
			case <-since:
				if !want {
					t.Fatal("a change was told, and there was none")
				}
			default:
				if want {
					t.Fatal("a change was not told")
				}
			}
		}
		since := tokens.Changed()
		known(true, false)
		changed(false, since)
		writeTokens(t, file, a, b)
		known(true, true)
		changed(true, since)

		ready := func(want string) {
			t.Helper()
			if ok, got := tokens.Ready(); !ok || got != want {
				t.Fatalf("readiness is %v, %q, want true, %q", ok, got, want)
			}
		}
		ready("")
		since = tokens.Changed()
		writeTokens(t, file, b, "- {name: a\n", "- {name: c}")
		known(false, true) // a is gone, however bad the other lines are
		changed(true, since)
		ready("degraded: gateway.tokens_file line 2: did not find expected ',' or '}' (and 1 more)")
		since = tokens.Changed()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		known(false, true)
		changed(false, since)
		ready("degraded: gateway.tokens_file no such file or directory")
		if n := logged.FilterMessage("gateway.tokens_refused").Len(); n != 2 {
			t.Errorf("%d lines say that the file cannot be used, want one for the bad and one for the missing", n)
		}
		writeTokens(t, file, a, b)
		known(true, true)
		changed(true, since)
		ready("")

		since = tokens.Changed()
		expires := time.Now().Add(10 * time.Second).UTC().Format(time.RFC3339)
		writeTokens(t, file, tokenLine("a", "sa", "nodes: [a], expires: "+expires))
		known(true, false)
		changed(true, since)
		since = tokens.Changed()
		time.Sleep(5 * time.Second)
		changed(false, since)
		known(true, false)
		time.Sleep(time.Second)
		known(false, false)
		changed(true, since)
	})
}

// TestTokensHalfWritten has each look of the file find more of it than the one before.
func TestTokensHalfWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		a, b := tokenLine("a", "sa", "nodes: [a]"), tokenLine("b", "sb", "nodes: [b]")
		writeTokens(t, file, a, b)
		tokens, err := gateway.OpenTokens(file, zap.NewNop(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := tokens.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer tokens.Stop(t.Context())
		since := tokens.Changed()
		time.Sleep(100 * time.Millisecond) // no look is at the moment of a change
		for _, lines := range [][]string{{""}, {a}, {a, b}} {
			writeTokens(t, file, lines...)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		select {
		case <-since:
			t.Fatal("half a file was taken")
		default:
		}
	})
}

func TestTokensStop(t *testing.T) {
	tokens, err := openTokens(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := tokens.Stop(t.Context()); err != nil {
		t.Errorf("stop before the start: %v", err)
	}
	if err := tokens.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tokens.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := tokens.Start(t.Context()); err == nil {
		t.Error("tokens start twice")
	}
}
