package tokenfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parseName reads items of a name and a hash.
func parseName(item *yaml.Node) (string, Head, error) {
	var line struct {
		Name, SHA256 string
		Expires      time.Time
	}
	if err := Decode(item, []string{"name", "sha256", "expires"}, &line); err != nil {
		return "", Head{}, err
	}
	digest, err := Digest(line.SHA256)
	return line.Name, Head{Name: line.Name, Digest: digest, Expires: line.Expires}, err
}

func lineOfToken(name, secret string) string {
	digest := sha256.Sum256([]byte(secret))
	return fmt.Sprintf("- {name: %s, sha256: %s}\n", name, hex.EncodeToString(digest[:]))
}

// open opens a file whose text the test changes.
func open(t testing.TB, text string) (*File[string], *string) {
	t.Helper()
	f, err := Open(Config[string]{
		Read: func() ([]byte, error) { return []byte(text), nil }, Parse: parseName, Name: "tokens_file", Event: "auth",
		Log: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f, &text
}

// settle lets the file be read until a change has taken effect.
func settle[L any](f *File[L]) {
	for range 2 {
		f.poll(time.Now())
	}
}

func names(f *File[string]) []string {
	var all []string
	for _, t := range *f.tokens.Load() {
		all = append(all, t.line)
	}
	slices.Sort(all)
	return all
}

func TestSlips(t *testing.T) {
	t.Parallel()
	a, b, c := lineOfToken("a", "sa"), lineOfToken("b", "sb"), lineOfToken("c", "sc")
	f, text := open(t, a+b+c)
	for _, one := range []struct {
		text string
		want []string
		told string
	}{
		{a + "- {name: b\n" + c, []string{"a", "c"}, "line 2: did not find expected ',' or '}'"},
		{a + "- {name: b, colour: red}\n", []string{"a"}, "line 2: colour is unknown, expected name, sha256, expires"},
		{"# a comment\n\n" + c + "  # another\n" + a + a, []string{"a", "c"}, "line 6: sha256 is also in another line, expected each once"},
		{"- name: b\n  sha256: zz\n-\n  name: d\n" + a, []string{"a"}, "line 1: sha256 is 2 characters"},
		{"name: b\n" + a + c, []string{"a", "c"}, "line 1: is not a sequence"},
		{"\t\n" + a + "x: [\n" + c, []string{"c"}, "line 1: found character"},
		{"[" + strings.TrimSpace(a[2:]) + "]", []string{"a"}, ""},
		{strings.Repeat("#", maxBytes+1), []string{"a"}, "is larger than"},
		{b, []string{"b"}, ""},
		{"", nil, ""},
	} {
		*text = one.text
		settle(f)
		if got := names(f); !slices.Equal(got, one.want) {
			t.Errorf("%.60q has the tokens %v, expected %v", one.text, got, one.want)
		}
		if _, got := f.Ready(); (one.told == "") != (got == "") || !strings.Contains(got, one.told) {
			t.Errorf("%.60q is told as %q, expected %q", one.text, got, one.told)
		}
		if (f.problems.Load() > 0) != (one.told != "") {
			t.Errorf("%.60q has %d problems", one.text, f.problems.Load())
		}
	}
}

// TestReadAgain: a file that has changed in any way is read as if it were new.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		line := rapid.SampledFrom([]string{
			lineOfToken("a", "1"), lineOfToken("b", "2"), lineOfToken("c", "3"), lineOfToken("d", "1"), "# comment\n", "- {name: x\n",
			"- {name: x}\n", "  - {name: y}\n", "\n", "---\n", "- name: m\n  sha256: " + strings.Repeat("ab", 32) + "\n",
		})
		f, text := open(t, "")
		for range 4 {
			*text = strings.Join(rapid.SliceOfN(line, 0, 6).Draw(rt, "lines"), "")
			settle(f)
			count, problems := Check([]byte(*text), parseName)
			if f.Len() != count || int(f.problems.Load()) != len(problems) {
				rt.Fatalf("%q has %d tokens and %d problems, expected %d and %v", *text, f.Len(), f.problems.Load(), count, problems)
			}
			fresh := &File[string]{}
			parts, _ := split([]byte(*text), nil, parseName)
			want, _ := fresh.collect(parts)
			got := *f.tokens.Load()
			if !maps.EqualFunc(got, want, func(a, b *token[string]) bool { return a.Head == b.Head }) {
				rt.Fatalf("%q is read as %v, expected %v", *text, got, want)
			}
		}
	})
}

// manyTokens is the text of a file of n tokens.
func manyTokens(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(lineOfToken(fmt.Sprintf("token-%d", i), fmt.Sprint(i)))
	}
	return text.String()
}

// BenchmarkReload changes one of 10,000 tokens. It must cost at most twice as much as
// BenchmarkReadAndHash, which only reads and hashes the file.
func BenchmarkReload(b *testing.B) {
	name := filepath.Join(b.TempDir(), "tokens.yaml")
	text := manyTokens(10_000)
	changed := strings.Replace(text, "token-5000,", "token-other,", 1)
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	write(text)
	f, err := Open(Config[string]{
		Read: OfFile(name), Parse: parseName, Name: "tokens_file", Event: "auth", Log: zap.NewNop(),
		Elsewhere: func([sha256.Size]byte) bool { return false },
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		write([]string{changed, text}[i%2])
		b.StartTimer()
		data, err := f.cfg.Read()
		if err == nil {
			err = f.take(data)
		}
		if err != nil || f.Len() != 10_000 {
			b.Fatal(f.Len(), err)
		}
	}
}

func BenchmarkReadAndHash(b *testing.B) {
	name := filepath.Join(b.TempDir(), "tokens.yaml")
	if err := os.WriteFile(name, []byte(manyTokens(10_000)), 0o600); err != nil {
		b.Fatal(err)
	}
	read := OfFile(name)
	for b.Loop() {
		data, err := read()
		if err != nil {
			b.Fatal(err)
		}
		_ = sha256.Sum256(data)
	}
}

// Whatever YAML allows in a sequence is read: an item that refers to another one, and an item that
// begins below its dash.
func TestItemsOfAnyForm(t *testing.T) {
	t.Parallel()
	type line struct {
		Name  string   `yaml:"name"`
		Nodes []string `yaml:"nodes"`
	}
	parse := func(item *yaml.Node) (l line, _ Head, _ error) {
		err := Decode(item, []string{"name", "nodes"}, &l)
		return l, Head{}, err
	}
	for name, text := range map[string]string{
		"anchor":     "- name: a\n  nodes: &n [x, y]\n- name: b\n  nodes: *n\n",
		"below dash": "-\n  name: a\n  nodes:\n    - x\n    - y\n-\n  name: b\n  nodes: [x, y]\n",
	} {
		var got []line
		parts, _ := split([]byte(text), nil, parse)
		for _, p := range parts {
			for _, s := range p.slips {
				t.Errorf("%s: line %d: %v, expected no slip", name, s.line, s.err)
			}
			for _, tok := range p.tokens {
				got = append(got, tok.line)
			}
		}
		want := []line{{"a", []string{"x", "y"}}, {"b", []string{"x", "y"}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// TestMovedToken: a token that opens another door is taken once it has left that door, without a
// change of its own file.
func TestMovedToken(t *testing.T) {
	t.Parallel()
	a, b := lineOfToken("a", "sa"), lineOfToken("b", "sb")
	there, text := true, a
	f, err := Open(Config[string]{
		Read: func() ([]byte, error) { return []byte(text), nil }, Parse: parseName, Name: "tokens_file", Event: "auth",
		Elsewhere: func(digest [sha256.Size]byte) bool { return there && digest == sha256.Sum256([]byte("sb")) },
		Log:       zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	text = a + b
	settle(f)
	if got, _ := f.Ready(); !slices.Equal(names(f), []string{"a"}) || f.problems.Load() != 1 {
		t.Errorf("the tokens are %v with %d problems, %v; want a alone and a problem", names(f), f.problems.Load(), got)
	}
	changed := f.Changed()
	f.poll(time.Now())
	select {
	case <-changed:
		t.Error("a look that found nothing new was told as a change")
	default:
	}
	there = false
	f.poll(time.Now())
	if _, detail := f.Ready(); !slices.Equal(names(f), []string{"a", "b"}) || detail != "" {
		t.Errorf("the tokens are %v, %q; want a and b and no problem", names(f), detail)
	}
	select {
	case <-changed:
	default:
		t.Error("the token that has moved was not told")
	}
	// A file that is too large is not forgiven by a look at what it had before.
	text = strings.Repeat("#", maxBytes+1)
	settle(f)
	f.poll(time.Now())
	if f.problems.Load() != 1 || f.Len() != 2 {
		t.Errorf("a file that is too large has %d problems and %d tokens; want 1 and 2", f.problems.Load(), f.Len())
	}
}
