package finding

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks: a finding leads to a view of the console, and to the one thing that it is about.
func TestLinks(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]Finding{
		"":                                    {ID: "tokens.expiring", Names: []string{"acme"}},
		"#/nodes?status=silent":               {ID: "nodes.silent", Names: []string{"a", "b"}},
		"#/nodes/a%2F%3F%23":                  {ID: "nodes.silent", Names: []string{"a/?#"}},
		"#/locks":                             {ID: "locks.unrenewed", Names: []string{"a", "b"}},
		"#/lists/vip":                         {ID: "lists.sources_late", Names: []string{"vip"}},
		"#/schedules/night%20ly?tenant=ac+me": {ID: "schedules.failing", Names: []string{"ac me/night ly"}},
		"#/dead":                              {ID: "jobs.dead", Names: []string{"node_lost"}},
		"#/replicas":                          {ID: "certificate.listen"},
	} {
		if got := linkOf(&f); got != want {
			t.Errorf("%s about %q leads to %q; want %q", f.ID, f.Names, got, want)
		}
	}
	page, err := os.ReadFile("../../console/src/views/index.ts")
	if err != nil {
		t.Fatal(err)
	}
	for kind, view := range views {
		if !strings.Contains(string(page), `path: "`+view+`"`) {
			t.Errorf("%s leads to %q; want a view of the console", kind, view)
		}
	}
}

// TestEachKindLeads: what makes findings makes none that leads nowhere, but for tokens.
func TestEachKindLeads(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"../*/finding*.go", "../*/*/finding*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	id, kinds := regexp.MustCompile(`\bID: +(?:fmt\.Sprintf\()?"([a-z]+)\.`), make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range id.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasSuffix(file, "_test.go") {
				kinds[match[1]] = file
			}
		}
	}
	if len(kinds) < len(views) {
		t.Errorf("%d kinds are found: %v; want at least %d", len(kinds), kinds, len(views))
	}
	for kind, file := range kinds {
		if kind != "tokens" && views[kind] == "" {
			t.Errorf("findings %s.… of %s lead nowhere; want a view", kind, file)
		}
	}
}
