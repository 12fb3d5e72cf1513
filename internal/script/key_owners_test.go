package script_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestOneWriter reads every script and key builder of internal. A family of keys or channels is the
// part of a name between the key prefix and the id: "jobs" of scheduler:jobs:<job>. The folder whose
// Go code builds a family's names owns it, and alone writes it. A script that reads or writes a key
// of another folder says so in its header:
//
//	-- Reads: scheduler:jobs:<job>, scheduler:due
//	-- Writes: scheduler:due
func TestOneWriter(t *testing.T) {
	t.Parallel()
	owner := make(map[string]string)
	for _, folder := range folders(t) {
		for family, at := range built(t, filepath.Join("..", folder)) {
			if other, owned := owner[family]; owned {
				t.Errorf("%s names keys of %q, as %s does", at, family, other)
			}
			owner[family] = folder
		}
	}
	for _, folder := range folders(t) {
		for at, s := range keysOfScripts(t, os.DirFS(filepath.Join("..", folder))) {
			for family := range s.touched {
				if owner[family] != folder && !s.foreign[family] {
					t.Errorf("%s/%s touches keys of %q, which are of %q: is this in its header, as Reads or Writes?", folder, at, family, owner[family])
				}
			}
			for family := range s.foreign {
				if owner[family] == folder || owner[family] == "" || !s.touched[family] {
					t.Errorf("%s/%s says that it touches %q of another folder", folder, at, family)
				}
			}
		}
	}
	for folder, family := range map[string]string{"cell": "jobs", "pool": "config:phase3", "schedule": "cron", "presence": "replicas", "script": "replicated"} {
		if owner[family] != folder {
			t.Errorf("%s owns %q, expected %s: does this test still read the key builders?", owner[family], family, folder)
		}
	}
}

// folders are those with Go code, by their paths in internal.
func folders(t *testing.T) (out []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(".."), ".", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || !entry.IsDir() || at == ".":
			return err
		case entry.Name() == "testdata", entry.Name() == "script" && at != "script":
			return fs.SkipDir
		default:
			out = append(out, at)
			return nil
		}
	})
	if err != nil || len(out) < 10 {
		t.Fatal(out, err)
	}
	return out
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
		touched, foreign := scripttest.Families(text)
		if len(touched) == 0 {
			t.Errorf("the header of %s names no key", at)
		}
		out[at] = scriptKeys{touched, foreign}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
