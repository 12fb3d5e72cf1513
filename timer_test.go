package freeslot_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// timersPage lists every file of production code that makes a timer.
const timersPage = "docs/design/timers.md"

// listedTimers is a file on the page, with the number of places if they are several.
var listedTimers = regexp.MustCompile("`([^`]+\\.go)`(?: \\((\\d+)\\))?")

// TestTimersAreListed: an idle process pays for each of its timers, so the page names each file
// that makes one, and in how many places.
func TestTimersAreListed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(timersPage)
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]int)
	for _, found := range listedTimers.FindAllStringSubmatch(string(page), -1) {
		listed[found[1]] = 1
		if found[2] != "" {
			listed[found[1]], _ = strconv.Atoi(found[2])
		}
	}
	for _, file := range treeFiles(t) {
		if got, want := timersOf(t, file), listed[file]; got != want {
			t.Errorf("%s makes timers in %d places, and %s has %d", file, got, timersPage, want)
		}
		delete(listed, file)
	}
	if len(listed) > 0 {
		t.Errorf("%s names files that are not there: %v", timersPage, listed)
	}
}

// timersOf counts the places where a file of a replica, an agent or a client makes a timer.
func timersOf(t *testing.T, file string) (places int) {
	t.Helper()
	if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/testing/") ||
		!slices.ContainsFunc([]string{"internal/", "worker/", "client/", "cmd/scheduler/", "cmd/nodeagent/"}, func(top string) bool {
			return strings.HasPrefix(file, top)
		}) {
		return 0
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && makesTimer(call.Fun) {
			places++
		}
		return true
	})
	return places
}

// makesTimer knows package time, and StoppedTimer of package socket, also from within.
func makesTimer(f ast.Expr) bool {
	if within, ok := f.(*ast.Ident); ok {
		return within.Name == "StoppedTimer"
	}
	selected, ok := f.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := selected.X.(*ast.Ident)
	return ok && (selected.Sel.Name == "StoppedTimer" || of.Name == "time" &&
		slices.Contains([]string{"NewTicker", "NewTimer", "AfterFunc", "After", "Tick"}, selected.Sel.Name))
}
