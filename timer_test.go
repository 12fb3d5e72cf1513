package freeslot_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// timersPage lists every file of production code that makes a timer.
const timersPage = "docs/design/timers.md"

// TestTimersAreListed: an idle process pays for each of its timers, so the page has to name a file
// that makes one, and names no file that does not.
func TestTimersAreListed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(timersPage)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for i, part := range strings.Split(string(page), "`") {
		if i%2 == 1 && strings.HasSuffix(part, ".go") {
			listed = append(listed, part)
		}
	}
	for _, file := range treeFiles(t) {
		if !hasTimers(t, file) {
			continue
		}
		if !slices.Contains(listed, file) {
			t.Errorf("%s makes a timer, and %s does not name it", file, timersPage)
		}
		listed = slices.DeleteFunc(listed, func(name string) bool { return name == file })
	}
	if len(listed) > 0 {
		t.Errorf("%s names files that make no timer: %q", timersPage, listed)
	}
}

// hasTimers reports whether a file of a replica, an agent or a client makes a timer.
func hasTimers(t *testing.T, file string) (found bool) {
	t.Helper()
	if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/testing/") ||
		!slices.ContainsFunc([]string{"internal/", "worker/", "client/", "cmd/scheduler/", "cmd/nodeagent/"}, func(top string) bool {
			return strings.HasPrefix(file, top)
		}) {
		return false
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		f, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := f.X.(*ast.Ident)
		found = found || ok && of.Name == "time" &&
			slices.Contains([]string{"NewTicker", "NewTimer", "AfterFunc", "After", "Tick"}, f.Sel.Name)
		return true
	})
	return found
}
