package freeslot_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// pathSpan is a code span that is a path, with "*" for any name.
	pathSpan = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)*/?$`)
	nameIn   = regexp.MustCompile("`([\\w.]+)` in `([^`]+)`")
	mdLink   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	notSlug  = regexp.MustCompile(`[^\w -]`)
	pageName = regexp.MustCompile(`\bdocs/[\w/-]+\.md(#[\w-]+)?`)
)

// TestDocsPaths holds the pages about the tree against the tree: each path in backticks exists, and
// each "`name` in `file`" is in that file, or in a file of that folder. A path that begins with no folder of the root, such as
// `lib/take.lua`, is the end of a path.
func TestDocsPaths(t *testing.T) {
	t.Parallel()
	files := treeFiles(t)
	pages, err := filepath.Glob("docs/design/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "docs/ARCHITECTURE.md", "docs/development.md", "docs/compatibility.md") {
		text := fence.ReplaceAllString(readPage(t, page), "")
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			if !pathSpan.MatchString(m[1]) {
				continue
			}
			first, _, inFolder := strings.Cut(m[1], "/")
			_, err := os.Stat(first)
			switch {
			case err == nil && inFolder && first != "bin" && first != ".dev":
				found++
				if matches, err := filepath.Glob(m[1]); err != nil || len(matches) == 0 {
					t.Errorf("%s names %s, which is not there", page, m[1])
				}
			case slices.Contains([]string{".go", ".lua"}, filepath.Ext(m[1])):
				found++
				if filesEndingIn(files, m[1]) == nil {
					t.Errorf("%s names %s, and no file of the tree ends so", page, m[1])
				}
			}
		}
		for _, m := range nameIn.FindAllStringSubmatch(text, -1) {
			if !hasName(t, files, m[1], m[2]) {
				t.Errorf("%s looks for %s in %s, which does not have it", page, m[1], m[2])
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d paths were found", found)
	}
}

// hasName reports whether a file, or a file of a folder, contains a name or is called so. It does
// not know what is neither a file nor a folder of the tree, and reports true.
func hasName(t *testing.T, files []string, name, where string) bool {
	t.Helper()
	places := filesEndingIn(files, where)
	if places == nil {
		places = filesIn(files, strings.TrimSuffix(where, "/"))
	}
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	return places == nil || slices.ContainsFunc(places, func(file string) bool {
		return filepath.Base(file) == name || word.MatchString(readPage(t, file))
	})
}

// TestHasName: a name that a page has wrong is found, in a file and in a folder.
func TestHasName(t *testing.T) {
	t.Parallel()
	files := treeFiles(t)
	for _, c := range []struct {
		name, where string
		want        bool
	}{
		{"Reply", "internal/script/reply.go", true},
		{"Reply", "internal/script", true},
		{"reply.go", "internal/script", true},
		{"NoSuchName" + "AtAll", "internal/script/reply.go", false},
		{"NoSuchName" + "AtAll", "internal/script", false},
		{"no_such_file.go", "internal/script/", false},
		{"anything", "nodes:<node>", true},
	} {
		if got := hasName(t, files, c.name, c.where); got != c.want {
			t.Errorf("%s in %s: %t, expected %t", c.name, c.where, got, c.want)
		}
	}
}

// TestDocsLinks: each link between pages leads to a page and a heading, and so does each page that
// code, configuration or a unit names.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	for _, file := range treeFiles(t) {
		text := readPage(t, file)
		var targets []string
		if filepath.Ext(file) == ".md" {
			for _, m := range mdLink.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
				if name, anchor, _ := strings.Cut(m[1], "#"); name == "" {
					targets = append(targets, file+"#"+anchor)
				} else if !strings.Contains(m[1], "://") {
					targets = append(targets, filepath.Join(filepath.Dir(file), m[1]))
				}
			}
		} else if strings.Contains(text, "docs/") {
			targets = pageName.FindAllString(text, -1)
		}
		for _, target := range targets {
			name, anchor, _ := strings.Cut(target, "#")
			if _, err := os.Stat(name); err != nil {
				t.Errorf("%s leads to %s, which is not there", file, target)
			} else if anchor != "" && !slices.Contains(anchors(readPage(t, name)), anchor) {
				t.Errorf("%s leads to %s, and there is no such heading", file, target)
			}
		}
	}
}

// anchors are the names that GitHub gives to the headings of a page.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := notSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(text, " ", "-"))
	}
	return out
}

// filesEndingIn are the files whose path ends in path.
func filesEndingIn(files []string, path string) []string {
	var out []string
	for _, file := range files {
		if strings.HasSuffix("/"+file, "/"+path) {
			out = append(out, file)
		}
	}
	return out
}

// filesIn are the files directly in the folders whose path ends in path.
func filesIn(files []string, path string) []string {
	var out []string
	for _, file := range files {
		if strings.HasSuffix("/"+filepath.Dir(file), "/"+path) {
			out = append(out, file)
		}
	}
	return out
}

// treeFiles are the text files of the repository that can name a page or be named by one.
func treeFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path != "." && strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "bin", "testdata"}, d.Name())):
			return fs.SkipDir
		case !d.IsDir() && slices.Contains([]string{".go", ".lua", ".md", ".yaml", ".service", ".sh"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
