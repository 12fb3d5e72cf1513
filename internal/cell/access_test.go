package cell

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAgentKeys: whatever kind of key the scripts of an agent name, the agent may use.
func TestAgentKeys(t *testing.T) {
	t.Parallel()
	l := Layout{Prefix: "p"}
	access, err := AccessOf(RoleAgent, "n1", nil, l)
	if err != nil {
		t.Fatal(err)
	}
	granted := func(key string) bool {
		return slices.ContainsFunc(slices.Concat(access.Keys, access.Reads), func(pattern string) bool { ok, _ := path.Match(pattern, key); return ok })
	}
	foreign, own := regexp.MustCompile(`key\('([a-z:]+)'`), regexp.MustCompile(`PREFIX \.\. '(:[a-z:]+)'`)
	for _, s := range calls(RoleAgent, nil) {
		for _, m := range foreign.FindAllStringSubmatch(s.Text(false), -1) {
			if key := "p:" + m[1] + ":"; !granted(key+"n1") && !granted(key+"x:members") {
				t.Errorf("%s names %s…", s.Name(), key)
			}
		}
		for _, m := range own.FindAllStringSubmatch(s.Text(false), -1) {
			if m[1] != ":" && !granted("p"+m[1]) {
				t.Errorf("%s names p%s", s.Name(), m[1])
			}
		}
	}
	for _, key := range []string{l.Node("n2"), l.Slots("n2"), l.Dispatch("n10"), "q:jobs:x", l.key("config:paused", ""), l.key("cron", ""), l.key("version:followed", ""), l.Idempotency("t", "k")} {
		if granted(key) {
			t.Errorf("the agent of n1 may use %s", key)
		}
	}
	rules := access.Rules()
	for _, key := range []string{l.Cells(), l.Schema(), l.ServesVersion()} { // what others start and choose by
		if !slices.Contains(rules, "%R~"+key) || slices.Contains(access.Keys, key) {
			t.Errorf("the agent of n1 may change %s, or not read it", key)
		}
	}
}

// TestPlainCommands: the commands that are called besides scripts are those that the sources build.
func TestPlainCommands(t *testing.T) {
	t.Parallel()
	// What has another name as a command, and what the client library does with connections that are given back.
	renamed := map[string]string{"clusterslots": "cluster|slots", "clusterinfo": "cluster|info", "scriptexists": "script|exists", "scriptload": "script|load"}
	built := map[string]bool{"client|tracking": true, "unsubscribe": true, "sunsubscribe": true, "punsubscribe": true, "discard": true}
	for _, folder := range []string{".", "../script", "../events", "../redis/client", "../dispatch/presence", "../schedule", "../pool"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range builtCommands(parsed) {
				built[name] = true
			}
		}
	}
	for name := range built {
		if to, ok := renamed[name]; ok {
			delete(built, name)
			built[to] = true
		}
	}
	granted := slices.Concat(connecting, plain[RoleReplica])
	for name := range built {
		if !slices.Contains(granted, name) {
			t.Errorf("%s is called, and no replica may", name)
		}
	}
	for _, name := range plain[RoleReplica] {
		if !built[name] {
			t.Errorf("a replica may call %s, and nothing does", name)
		}
	}
	for role, names := range plain {
		for _, name := range names {
			if !slices.Contains(granted, name) {
				t.Errorf("%s may call %s, which a replica may not", role, name)
			}
		}
	}
}

// builtCommands are the names of X in B().X() and b().X(), lower case.
func builtCommands(file *ast.File) []string {
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		selected, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		call, ok := selected.X.(*ast.CallExpr)
		if !ok || len(call.Args) > 0 {
			return true
		}
		switch fun := call.Fun.(type) {
		case *ast.SelectorExpr:
			ok = fun.Sel.Name == "B"
		case *ast.Ident:
			ok = fun.Name == "b"
		default:
			ok = false
		}
		if ok {
			out = append(out, strings.ToLower(selected.Sel.Name))
		}
		return true
	})
	return out
}
