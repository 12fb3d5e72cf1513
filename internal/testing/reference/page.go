// Package reference writes the pages of docs/reference from the code: configuration keys, flags and
// metrics. Only tests import it; `make reference` makes them write the pages.
package reference

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// Check does what golden.File does, for one section of the page docs/reference/<page>: the section
// must have this content. The rest of the page is written by hand.
func Check(t *testing.T, page, section, content string) {
	t.Helper()
	name := filepath.Join(root(t), "docs", "reference", page)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	heading := "\n## " + section + "\n"
	before, rest, ok := strings.Cut(string(data), heading)
	if !ok {
		t.Fatalf("%s has no section %q", name, section)
	}
	after := ""
	if i := strings.Index(rest, "\n## "); i >= 0 {
		after = rest[i:]
	}
	golden.File(t, name, before+heading+"\n"+strings.TrimSpace(content)+"\n"+after)
}

// root returns the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir := "."
	for range 8 {
		if _, err := os.Stat(filepath.Join(dir, "docs", "reference")); err == nil {
			return dir
		}
		dir = filepath.Join(dir, "..")
	}
	t.Fatal("docs/reference is in no folder above this one")
	return ""
}

// RowsTable renders rows in Markdown.
func RowsTable(head []string, rows [][]string) string {
	var b strings.Builder
	for _, row := range append(
		[][]string{head, strings.Split(strings.Repeat("--- ", len(head)), " ")[:len(head)]}, rows...,
	) {
		for _, cell := range row {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
