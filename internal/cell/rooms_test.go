package cell

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// below lists the rooms that the files of a room may use. The room of a file is the first word of
// its name. Files of no room are the base, on which all rooms stand, or assemble a cell.
var below = map[string][]string{
	"base":     {},
	"node":     {"base"},
	"job":      {"base"},
	"queue":    {"job", "base"},
	"move":     {"queue", "job", "base"},
	"assembly": {"move", "queue", "job", "node", "base"},
}

func roomOf(file string) string {
	switch file {
	case "access.go", "check.go", "lifecycle.go":
		return "assembly"
	}
	if room, _, _ := strings.Cut(file, "_"); below[room] != nil {
		return room
	}
	return "base"
}

// TestRooms: files use only declarations of their own room and of rooms below it, and no two files
// use each other, not even over others.
func TestRooms(t *testing.T) {
	t.Parallel()
	uses := usesOfFiles(t)
	arrows := 0
	for _, files := range uses {
		arrows += len(files)
	}
	if arrows < 150 {
		t.Fatalf("found %d arrows between files, expected at least 150: does this test still read the package?", arrows)
	}
	for from, files := range uses {
		for to, name := range files {
			if a, b := roomOf(from), roomOf(to); a != b && !slices.Contains(below[a], b) {
				t.Errorf("%s (room %s) uses %s of %s (room %s), expected only rooms %v", from, a, name, to, b, below[a])
			}
		}
	}
	if circle := circleOf(uses); circle != nil {
		t.Errorf("files use each other in a circle, expected none: %s", strings.Join(circle, " -> "))
	}
}

// usesOfFiles returns, for each file of the package without its tests, the other files that it
// uses, each with the name of one declaration there.
func usesOfFiles(t *testing.T) map[string]map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	// What other packages declare stays unknown, which makes errors but hides no use of the package's
	// own names.
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := config.Check("cell", fset, files, info)
	out := make(map[string]map[string]string)
	for id, o := range info.Uses {
		if o.Pkg() != pkg {
			continue
		}
		if _, method := o.(*types.Func); !method && o.Parent() != pkg.Scope() {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(o.Pos()).Filename
		if from == to {
			continue
		}
		if out[from] == nil {
			out[from] = make(map[string]string)
		}
		out[from][to] = o.Name()
	}
	return out
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }

// circleOf returns files of which each uses the next one, from one file back to itself; nil if
// there is no circle.
func circleOf(uses map[string]map[string]string) []string {
	done := make(map[string]bool)
	var visit func(way []string) []string
	visit = func(way []string) []string {
		file := way[len(way)-1]
		if i := slices.Index(way, file); i < len(way)-1 {
			return way[i:]
		}
		for _, to := range slices.Sorted(maps.Keys(uses[file])) {
			if done[to] {
				continue
			}
			if circle := visit(append(way, to)); circle != nil {
				return circle
			}
		}
		done[file] = true
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		if circle := visit([]string{file}); circle != nil {
			return circle
		}
	}
	return nil
}

func TestCircleOf(t *testing.T) {
	t.Parallel()
	uses := map[string]map[string]string{"a": {"b": "", "c": ""}, "b": {"c": ""}, "c": {"d": ""}}
	if got := circleOf(uses); got != nil {
		t.Errorf("without a circle it returned %v, expected nil", got)
	}
	uses["d"] = map[string]string{"b": ""}
	if got, want := fmt.Sprint(circleOf(uses)), "[b c d b]"; got != want {
		t.Errorf("the circle is %s, expected %s", got, want)
	}
}
