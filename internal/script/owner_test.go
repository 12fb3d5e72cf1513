package script_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/script"
)

// owners are the families of keys and channels by the folder of internal that alone writes them. A family is
// the part of a name between the key prefix and the id: "jobs" of scheduler:jobs:<job>.
var owners = map[string][]string{
	"script": {"replicated"},
	"cell": {
		// jobs
		"jobs", "due", "finished", "kept", "idem", "rate", "replies", "moves", "moved",
		// nodes
		"nodes", "nodes:index:online", "load", "metrics", "slots", "dispatch", "drained", "pool", "index:revision",
		"version:nodes", "events:node_update",
		// queues and limits
		"waiting", "version:waiting", "fair", "serves", "version:serves", "version:serves-of", "gates", "gate", "parked",
		// the system
		"replicas", "version:cells", "version:schema", "version:followed",
		// configuration of pools
		"config:phase3", "config:paused", "config:history", "version:config", "index:lang_pairs", "version:index",
		// schedules
		"cron", "cron:state", "cron:index", "cron:due",
	},
	// under a prefix of their own
	"lock": {"held", "queue", "alive", "token", "audit", "wake"},
}

// TestOneWriter reads every script and key builder: each family of keys has one owner. A script that reads or writes
// a key of another feature says so in its header:
//
//	-- Reads: scheduler:jobs:<job>, scheduler:due
//	-- Writes: scheduler:due
func TestOneWriter(t *testing.T) {
	t.Parallel()
	owner := make(map[string]string)
	for folder, families := range owners {
		for _, family := range families {
			if other := owner[family]; other != "" {
				t.Errorf("%s is of %s and of %s", family, other, folder)
			}
			owner[family] = folder
		}
	}
	folders, err := filepath.Glob("../*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	named := make(map[string]bool)
	for _, dir := range folders {
		folder := filepath.Base(dir)
		for family, at := range built(t, dir) {
			named[family] = true
			if owner[family] != folder {
				t.Errorf("%s names keys of %q, which is of %q, not of %s", at, family, owner[family], folder)
			}
		}
		for at, s := range keysOfScripts(t, os.DirFS(dir)) {
			for _, family := range slices.Sorted(maps.Keys(s.touched)) {
				named[family] = true
				if owner[family] != folder && !s.foreign[family] {
					t.Errorf("%s/%s touches keys of %q, which is of %q: is this in its header, as Reads or Writes?", folder, at, family, owner[family])
				}
			}
			for family := range s.foreign {
				if owner[family] == folder || owner[family] == "" || !s.touched[family] {
					t.Errorf("%s/%s says that it touches %q of another feature", folder, at, family)
				}
			}
		}
	}
	for family, folder := range owner {
		if !named[family] {
			t.Errorf("%s owns %q, and nothing names such a key", folder, family)
		}
	}
}

// built are the families that the Go code of a folder builds names of, by Layout.Key and functions that are called so.
func built(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || fun.Sel.Name != "Key" && fun.Sel.Name != "key" {
				return true
			}
			if family, ok := call.Args[0].(*ast.BasicLit); ok && family.Kind == token.STRING {
				name, _ := strconv.Unquote(family.Value)
				out[name] = file
			}
			return true
		})
	}
	return out
}

// scriptKeys are families of keys, as one script has them.
type scriptKeys struct{ touched, foreign map[string]bool }

var (
	keysPart   = regexp.MustCompile(`(?ms)^-- KEYS\[.*?^-- (?:ARGV|Returns)`)
	keyPattern = regexp.MustCompile(`\b([a-z]+(?:[:_-][a-z_]+)*)(?::<[a-z]+>\S*)?\s+(?:string|hash|set|zset|stream|list)\b`)
	keyCall    = regexp.MustCompile(`\bkey\('([^']+)'`)
	keyPrefix  = regexp.MustCompile(`PREFIX \.\. ':([^':]+(?::[a-z_-]+)*)'`)
	foreign    = regexp.MustCompile(`(?m)^-- (?:Reads|Writes): (.*)$`)
	foreignKey = regexp.MustCompile(`\bscheduler:([a-z]+(?:[:_-][a-z_]+)*)`)
)

// keysOfScripts are what the scripts of a feature touch: what their headers say of KEYS, and the names that they make.
func keysOfScripts(t *testing.T, feature fs.FS) map[string]scriptKeys {
	t.Helper()
	out := make(map[string]scriptKeys)
	err := fs.WalkDir(feature, "script", func(at string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return fs.SkipAll
		}
		if err != nil || entry.IsDir() || path.Ext(at) != ".lua" || path.Dir(at) == "script/lib" {
			return err
		}
		text, err := script.Source(feature, at)
		s := scriptKeys{touched: make(map[string]bool), foreign: make(map[string]bool)}
		patterns := keyPattern.FindAllStringSubmatch(keysPart.FindString(text), -1)
		if len(patterns) == 0 {
			t.Errorf("the header of %s names no key", at)
		}
		for _, m := range slices.Concat(patterns, keyCall.FindAllStringSubmatch(text, -1), keyPrefix.FindAllStringSubmatch(text, -1)) {
			s.touched[m[1]] = true
		}
		for _, line := range foreign.FindAllStringSubmatch(text, -1) {
			for _, m := range foreignKey.FindAllStringSubmatch(line[1], -1) {
				s.foreign[m[1]] = true
			}
		}
		out[at] = s
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
