package freeslot_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// hard are phrases that make a reader stop: a pronoun where a noun belongs, a function that "is"
// something, an exception in the middle of its rule. docs/development.md has the rules.
var hard = regexp.MustCompile(`(?i)(//|--|^[^a-zA-Z]*[A-Z|>*-]).*(` +
	`\b(is|are|was) (whether|that|those of|that of|for how long|since when|for which|in which|of what|so many)\b|` +
	`\bso (many|long) (as|that)\b|\bso many\b|\bbut for\b|` +
	`\b(whoever|nobody|is told|are told|was told|of which|that of|those of|of what|what is of|in vain)\b|` +
	`\bhas .{1,30} (removed|looked at|read|done|called)\b)`)

// mostHard leaves room for names and figures of speech that only look like these phrases.
const mostHard = 40

// TestPlainEnglish counts hard phrases in comments and docs of the product.
func TestPlainEnglish(t *testing.T) {
	t.Parallel()
	var hits []string
	for _, file := range treeFiles(t) {
		switch filepath.Ext(file) {
		case ".go", ".lua", ".md":
		default:
			continue
		}
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "bench/") || strings.HasPrefix(file, "test/") ||
			strings.HasPrefix(file, "docs/reference/") || file == "CHANGELOG.md" {
			continue
		}
		for i, line := range strings.Split(readPage(t, file), "\n") {
			if hard.MatchString(line) {
				hits = append(hits, file+":"+strconv.Itoa(i+1)+": "+strings.TrimSpace(line))
			}
		}
	}
	t.Logf("%d hard phrases", len(hits))
	if len(hits) > mostHard {
		t.Errorf("%d hard phrases, expected at most %d:\n%s", len(hits), mostHard, strings.Join(hits, "\n"))
	}
}
