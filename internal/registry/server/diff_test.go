package server

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDiffText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want string }{
		{"a\n", "a\n", ""},
		{"", "a\n", "@@ -0,0 +1,1 @@\n+a\n"},
		{"a\n", "", "@@ -1,1 +0,0 @@\n-a\n"},
		{"a", "a\n", "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{"a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3\n@@ -7,4 +8,3 @@\n 7\n 8\n 9\n-10\n"},
	} {
		if got := diffText(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %q, expected %q", c.a, c.b, got, c.want)
		}
	}
}

// TestDiffRandom: the lines that stay and go are those of the one text, the lines that stay and
// come those of the other, and no more go and come than a slow twin finds.
func TestDiffRandom(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := func() (out []string) {
		for range random.IntN(12) {
			out = append(out, fmt.Sprintf("%d\n", random.IntN(4)))
		}
		return out
	}
	for range 5000 {
		a, b := text(), text()
		var before, after []string
		changed := 0
		for _, e := range diffLines(a, b) {
			if e.op != '+' {
				before = append(before, e.text)
			}
			if e.op != '-' {
				after = append(after, e.text)
			}
			if e.op != ' ' {
				changed++
			}
		}
		if strings.Join(before, "") != strings.Join(a, "") || strings.Join(after, "") != strings.Join(b, "") {
			t.Fatalf("%q to %q: %q to %q", a, b, before, after)
		}
		if least := len(a) + len(b) - 2*common(a, b); changed != least {
			t.Fatalf("%q to %q: %d edits, expected %d", a, b, changed, least)
		}
	}
}

// common is the length of the longest common subsequence.
func common(a, b []string) int {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if row[j+1] = max(above, row[j]); x == y {
				row[j+1] = diagonal + 1
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// TestDiffLarge: texts that have nothing in common end soon.
func TestDiffLarge(t *testing.T) {
	t.Parallel()
	if got := diffText(strings.Repeat("a\n", 500_000), strings.Repeat("b\n", 500_000)); !strings.HasPrefix(got, "@@ -1,500000 +1,500000 @@\n-a\n") {
		t.Fatalf(`%.60q; want strings.HasPrefix(got, "@@ -1,500000 +1,500000 @@\n-a\n")`, got)
	}
}
