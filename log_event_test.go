package freeslot_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot/internal/testing/reference"
)

// eventName is how an event is called: a noun and a verb in the past, with a dot between them.
var eventName = regexp.MustCompile(`^[a-z][a-z_-]*(\.[a-z0-9_]+)+$`)

// levelOf has the levels of the arguments of functions that log: methods of zap's logger, and
// helpers that get the names of events.
var levelOf = map[string][]string{
	"Debug": {"debug"}, "Info": {"info"}, "Warn": {"warn"}, "Error": {"error"}, "Log": {"", "info"},
	"NewOutage": {"", "warn", "info"}, "NewRepeated": {"", "warn"}, "warn": {"warn"}, "logDoubt": {"warn"},
}

// prefixed has the levels of events by the end of their names, where the begin varies.
var prefixed = map[string]string{
	".tokens_read": "info", ".tokens_refused": "error", ".snapshot_not_written": "warn", ".snapshot_ignored": "warn",
}

// logged returns the levels of each event in the code; schedctl has warnings for people, not
// events.
func logged(t *testing.T) map[string][]string {
	t.Helper()
	events := make(map[string][]string)
	for _, file := range treeFiles(t) {
		top, _, _ := strings.Cut(file, "/")
		if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") ||
			strings.HasPrefix(file, "internal/testing/") || strings.HasPrefix(file, "cmd/schedctl/") || slices.Contains([]string{"bench", "test", "examples", "tools"}, top) {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				addEvents(t, events, file, call)
			}
			return true
		})
	}
	return events
}

func addEvents(t *testing.T, events map[string][]string, file string, call *ast.CallExpr) {
	t.Helper()
	name := ""
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
	case *ast.Ident:
		name = f.Name
	}
	for i, level := range levelOf[name] {
		if i >= len(call.Args) || level == "" {
			continue
		}
		literal, ok := call.Args[i].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		event, err := strconv.Unquote(literal.Value)
		switch {
		case err != nil || event == "", name == "warn" && !strings.HasPrefix(file, "internal/dispatch/"):
		case !eventName.MatchString(event):
			t.Errorf("%s logs %q; want a noun and a verb with a dot between them, such as replica.started", file, event)
		case !slices.Contains(events[event], level):
			events[event] = append(events[event], level)
		}
	}
}

// TestLogEventsReference: each event that is logged has a meaning, and each warning and error what
// to do about it; docs/reference/log-events.md has them all.
func TestLogEventsReference(t *testing.T) {
	t.Parallel()
	const file = "internal/process/logging/events.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var meant map[string][]string
	if err := yaml.Unmarshal(text, &meant); err != nil {
		t.Fatal(err)
	}
	events := logged(t)
	if len(events) < 200 {
		t.Fatalf("found %d events in the code; want more than 200", len(events))
	}
	for event := range meant {
		for end, level := range prefixed {
			if strings.HasSuffix(event, end) {
				events[event] = []string{level}
			}
		}
		if events[event] == nil {
			t.Errorf("%s has %s, which no code logs", file, event)
		}
	}
	order := []string{"debug", "info", "warn", "error"}
	var rows [][]string
	for _, event := range slices.Sorted(maps.Keys(events)) {
		levels, says := events[event], meant[event]
		slices.SortFunc(levels, func(a, b string) int { return cmp.Compare(slices.Index(order, a), slices.Index(order, b)) })
		loud := slices.Contains(levels, "warn") || slices.Contains(levels, "error")
		if len(says) == 0 || len(says) > 2 || loud != (len(says) == 2) {
			t.Errorf("%s says %q of %s, which is logged as %v; want its meaning, and what to do if and only if it warns",
				file, says, event, levels)
			continue
		}
		rows = append(rows, []string{"`" + event + "`", strings.Join(levels, ", "), says[0], strings.Join(says[1:], "")})
	}
	reference.Check(t, "log-events.md", "Events",
		reference.RowsTable([]string{"event", "level", "meaning", "what to do"}, rows))
}
