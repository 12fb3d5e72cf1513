package scripttest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/script"
)

var (
	// commandCall matches a call of redis.call or redis.pcall, of a name that scripts give them, or
	// of lib/sure.lua, up to the end of the command's name. That may be an expression with several
	// names.
	commandCall = regexp.MustCompile(`\b(?:redis\.p?call\(|call\(|try\(|sure\(|pcall\(redis\.p?call, )([^,()]*)`)
	commandName = regexp.MustCompile(`'([A-Z]+)'`)
	// publishCall is the form that becomes SPUBLISH on a cluster.
	publishCall = "'PUBLISH', channel, "
)

// commands returns the commands that a script can call, in lower case.
func commands(text string) map[string]bool {
	found := make(map[string]bool)
	for _, call := range commandCall.FindAllStringSubmatch(body(text), -1) {
		for _, name := range commandName.FindAllStringSubmatch(call[1], -1) {
			found[strings.ToLower(name[1])] = true
		}
	}
	return found
}

// CheckAccess compares what a feature says it needs in Redis with what its scripts call, and with
// what the Go code of the package under test builds by B(). Nothing may be missing, and nothing may
// be granted that has no caller.
func CheckAccess(t testing.TB, access script.Access) {
	t.Helper()
	built := BuiltCommands(t, ".")
	for role, needs := range access.Roles {
		if !slices.Contains(script.Roles, role) {
			t.Errorf("%s is no role", role)
		}
		if !slices.IsSorted(needs.Commands) {
			t.Errorf("the commands of %s are not sorted", role)
		}
		names := needs.Scripts
		if role == script.RoleReplica {
			names = slices.Collect(maps.Keys(access.Scripts))
		}
		called, publishes := make(map[string]bool), false
		for _, name := range names {
			s := access.Scripts[name]
			if s == nil {
				t.Errorf("%s calls %s, which is no script", role, name)
				continue
			}
			text := s.Text(false)
			maps.Copy(called, commands(text))
			publishes = publishes || strings.Contains(text, publishCall)
			if needs.Names != nil {
				checkNames(t, role, name, text, needs)
			}
		}
		if publishes != needs.Publishes {
			t.Errorf("%s publishes: %t, and its scripts %t", role, needs.Publishes, publishes)
		}
		if publishes {
			delete(called, "publish")
		}
		for command := range called {
			if !slices.Contains(needs.Commands, command) {
				t.Errorf("a script of %s calls %s, which it may not", role, command)
			}
		}
		for _, command := range needs.Commands {
			if !called[command] && !built[command] {
				t.Errorf("%s may call %s, and nothing does", role, command)
			}
		}
	}
	for command := range built {
		if !slices.Contains(access.Roles[script.RoleReplica].Commands, command) {
			t.Errorf("%s is called, and no replica may", command)
		}
	}
}

// checkNames checks that an agent may use every kind of key that a script names.
func checkNames(t testing.TB, role script.Role, name, text string, needs script.Needs) {
	t.Helper()
	l := script.Layout{Prefix: "p"}
	names := needs.Names(l, "n1")
	touched, _ := Families(text)
	for family := range touched {
		if !slices.ContainsFunc(slices.Concat(names.Keys, names.Reads), func(pattern string) bool {
			for _, key := range []string{l.Key(family, ""), l.Key(family, "n1"), l.Key(family, "x:members")} {
				if ok, err := path.Match(pattern, key); ok && err == nil {
					return true
				}
			}
			return false
		}) {
			t.Errorf("%s of %s touches keys of %q, which it may not", name, role, family)
		}
	}
}

var (
	keysPart   = regexp.MustCompile(`(?ms)^-- KEYS\[.*?^-- (?:ARGV|Returns)`)
	keyPattern = regexp.MustCompile(
		`\b([a-z]+(?:[:_-][a-z_]+)*)(?::<[a-z]+>\S*)?\s+(?:string|hash|set|zset|stream|list)\b`,
	)
	keyCall    = regexp.MustCompile(`\bkey\('([^']+)'`)
	keyPrefix  = regexp.MustCompile(`PREFIX \.\. ':([^':]+(?::[a-z_-]+)*)'`)
	foreign    = regexp.MustCompile(`(?m)^-- (?:Reads|Writes): (.*)$`)
	foreignKey = regexp.MustCompile(`\bscheduler:([a-z]+(?:[:_-][a-z_]+)*)`)
)

// Families returns the families of keys that a script and its includes touch, according to its
// header and to the names that it makes. others are those that its header assigns to other
// features. A family is the part of a name between the key prefix and the id: "jobs" in
// scheduler:jobs:<job>.
func Families(text string) (touched, others map[string]bool) {
	touched, others = make(map[string]bool), make(map[string]bool)
	for _, m := range slices.Concat(
		keyPattern.FindAllStringSubmatch(keysPart.FindString(text), -1),
		keyCall.FindAllStringSubmatch(text, -1), keyPrefix.FindAllStringSubmatch(text, -1),
	) {
		touched[m[1]] = true
	}
	for _, line := range foreign.FindAllStringSubmatch(text, -1) {
		for _, m := range foreignKey.FindAllStringSubmatch(line[1], -1) {
			others[m[1]] = true
		}
	}
	return touched, others
}

// BuiltCommands returns the names X in B().X(), b().X() and B().Arbitrary("X", ...) of the Go code
// in folder, in the form of ACLs.
func BuiltCommands(t testing.TB, folder string) map[string]bool {
	t.Helper()
	renamed := map[string]string{
		"clusterslots": "cluster|slots", "clusterinfo": "cluster|info", "configget": "config|get",
		"slowlogget": "slowlog|get", "evalro": "eval_ro", "evalsharo": "evalsha_ro",
		"memoryusage": "memory|usage", "objectencoding": "object|encoding", "scriptexists": "script|exists",
		"scriptload": "script|load",
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(folder, files, err)
	}
	out := make(map[string]bool)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if name, ok := builtCommand(call.Fun); ok && name == "arbitrary" && len(call.Args) > 0 {
					if first, ok := call.Args[0].(*ast.BasicLit); ok {
						out[strings.ToLower(strings.Trim(first.Value, `"`))] = true
						return false
					}
				}
			}
			if name, ok := builtCommand(n); ok {
				if to, ok := renamed[name]; ok {
					name = to
				}
				out[name] = true
			}
			return true
		})
	}
	return out
}

func builtCommand(n ast.Node) (name string, ok bool) {
	selected, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	call, ok := selected.X.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return "", false
	}
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		ok = fun.Sel.Name == "B"
	case *ast.Ident:
		ok = fun.Name == "b"
	default:
		ok = false
	}
	return strings.ToLower(selected.Sel.Name), ok
}
