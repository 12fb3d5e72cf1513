package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const configs = "/admin/registry/config"

// TestConfigDocuments: the life of a document by its routes.
func TestConfigDocuments(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		const limits = configs + "/limits"
		b.ask(t, "GET", configs, "", `"documents":[]`)
		b.ask(t, "PUT", limits, `{"version":0,"content":"a: 1\nb: 2\n","author":"ann","note":"first"}`, `{"version":1}`)
		b.ask(t, "PUT", limits, `{"version":1,"content":"a: 1\nb: 3\n"}`, `{"version":2}`)
		b.ask(t, "PUT", limits, `{"version":1,"content":"a: 1\nb: 3\n"}`, `{"version":2}`) // the same again
		late := b.Do(t, "PUT", limits, `{"version":1,"content":"x"}`, root...)
		late.Refusal(t, http.StatusConflict, freeslot.CodeConflict)
		if !strings.Contains(late.Text, "is at version 2") {
			t.Error(late.Text)
		}
		b.ask(t, "GET", configs, "", `"documents":[{"name":"limits","version":2,"at_ms":`)
		b.ask(t, "GET", configs+"?after=limits", "", `"documents":[]`)
		b.ask(t, "GET", limits, "", `"name":"limits","version":2,"author":"ops"`, `"content":"a: 1\nb: 3\n"`)
		b.ask(t, "GET", limits+"?version=1", "", `"author":"ops/ann","note":"first"`, `"content":"a: 1\nb: 2\n"`)
		b.ask(t, "GET", limits+"/history", "", `"versions":[{"version":2,`, `{"version":1,"author":"ops/ann","note":"first"`)
		b.ask(t, "GET", limits+"/diff", "", `"from":1,"to":2,"diff":"@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"`)
		b.ask(t, "GET", limits+"/diff?to=1", "", `"from":0,"to":1,"diff":"@@ -0,0 +1,2 @@\n+a: 1\n+b: 2\n"`)
		b.ask(t, "GET", limits+"/diff?from=2&to=2", "", `"diff":""`)
		b.ask(t, "POST", limits+"/rollback", `{"version":2,"restore":1,"author":"bob"}`, `{"version":3}`)
		b.ask(t, "GET", limits, "", `"version":3,"author":"ops/bob"`, `"restores":1`, `"content":"a: 1\nb: 2\n"`)
		b.Do(t, "DELETE", limits+"?version=2", "", root...).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
		b.ask(t, "DELETE", limits+"?version=3", "")
		for _, target := range []string{limits, limits + "/history", limits + "/diff"} {
			b.Do(t, "GET", target, "", root...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		}
		b.ask(t, "PUT", limits, `{"version":0,"content":"new"}`, `{"version":4}`)
		b.ask(t, "GET", limits+"/diff", "", `"from":0,"to":4`)
	})
}

// TestConfigDocumentLarge: a document of 1 MiB passes however JSON writes it, and no larger one
// does.
func TestConfigDocumentLarge(t *testing.T) {
	t.Parallel()
	b := newBed(t, redistest.Shared(t))
	body := func(n int) string {
		text, err := json.Marshal(map[string]any{"version": 0, "content": strings.Repeat("<", n)})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	b.ask(t, "PUT", configs+"/large", body(registry.MaxDocument), `{"version":1}`)
	b.Do(t, "PUT", configs+"/larger", `{"version":0,"content":"`+strings.Repeat("x", registry.MaxDocument+1)+`"}`, root...).
		Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	b.Do(t, "PUT", configs+"/larger", body(2*registry.MaxDocument), root...).Refusal(t, http.StatusRequestEntityTooLarge, freeslot.CodePayloadTooLarge)
}

// TestReadDocument: clients read documents, and wait for another version.
func TestReadDocument(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		const path = "/v1/documents/history"
		b.Do(t, "GET", path, "", acme...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		b.Do(t, "GET", path+"?wait_ms=1", "", acme...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		b.ask(t, "PUT", configs+"/history", `{"version":0,"content":"a"}`, `{"version":1}`)
		for _, target := range []string{path, path + "?wait_ms=60000", path + "?version=1&wait_ms=1"} {
			if got := b.Do(t, "GET", target, "", acme...); got.Status != http.StatusOK || !strings.Contains(got.Text, `"version":1`) {
				t.Errorf("%s: %d %s; want got.Status == http.StatusOK, strings.Contains(got.Text, `\"version\":1`)", target, got.Status, got.Text)
			}
		}
		answers := make(chan string, 1)
		go func() { answers <- b.Do(t, "GET", path+"?version=1&wait_ms=60000", "", acme...).Text }()
		b.ask(t, "PUT", configs+"/history", `{"version":1,"content":"b"}`, `{"version":2}`)
		if got := waittest.Receive(t, "the end of the wait", answers); !strings.Contains(got, `"content":"b"`) {
			t.Error(got)
		}
	})
}

// TestConfigDocumentRefused: bad input is named, and clients do not change documents.
func TestConfigDocumentRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, redistest.Shared(t))
	for _, c := range []struct{ method, target, content, field string }{
		{"GET", configs + "/a%20b", "", "name"},
		{"GET", configs + "/a%20b/history", "", "name"},
		{"GET", "/v1/documents/a%20b", "", "name"},
		{"GET", "/v1/documents/a%20b?wait_ms=10", "", "name"},
		{"GET", "/v1/documents/a?wait_ms=60001", "", "wait_ms"},
		{"GET", configs + "/a?version=-1", "", "version"},
		{"PUT", configs + "/a", `{"content":"a"}`, "version"},
		{"PUT", configs + "/a", `{"version":0}`, "content"},
		{"PUT", configs + "/a", `{"version":-1,"content":"a"}`, "version"},
		{"PUT", configs + "/a", `{"version":0,"content":"a","note":"a\nb"}`, "note"},
		{"PUT", configs + "/a", `{"version":0,"content":"a","colour":"a"}`, "colour"},
		{"POST", configs + "/a/rollback", `{"restore":1}`, "version"},
		{"POST", configs + "/a/rollback", `{"version":1}`, "restore"},
		{"DELETE", configs + "/a", "", "version"},
	} {
		if got := b.Do(t, c.method, c.target, c.content, root...); got.Status != http.StatusBadRequest || !strings.Contains(got.Text, c.field) {
			t.Errorf("%s %s %s: %d %s; want got.Status == http.StatusBadRequest, strings.Contains(got.Text, c.field)", c.method, c.target, c.content, got.Status, got.Text)
		}
	}
	for _, c := range [][2]string{
		{"GET", configs},
		{"GET", configs + "/a"},
		{"GET", configs + "/a/history"},
		{"GET", configs + "/a/diff"},
		{"PUT", configs + "/a"},
		{"POST", configs + "/a/rollback"},
		{"DELETE", configs + "/a?version=1"},
	} {
		b.Do(t, c[0], c[1], `{"version":0,"content":"a"}`, acme...).Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	}
}
