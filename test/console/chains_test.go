package console

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// chain is what the tests look at in a chain.
type chain struct {
	Version int
	Shadow  *struct{}
}

// canary is a document for a percentage of users and a list, a field a line.
func canary(list string, percent int) string {
	return fmt.Sprintf(`{
  "name": "canary",
  "attributes": {"age": "integer"},
  "variants": {"new": {"model": "<b>m2</b>"}},
  "rules": [
    {"name": "testers", "kind": "in", "list": %q, "unknown": "skip", "outcome": "variant: new"},
    {
      "name": "share",
      "kind": "percentage",
      "percent": %d,
      "unknown": "skip",
      "outcome": "variant: new"
    }
  ],
  "default": "allow"
}`, list, percent)
}

// chain waits until the chain is as it should be.
func (r *replica) chain(token, what string, is func(c chain) bool) {
	r.t.Helper()
	waittest.Succeeds(r.t, what, func() error {
		var c chain
		if err := r.get("/v1/chains/canary", token, &c); err != nil || is(c) {
			return err
		}
		return fmt.Errorf("it is %+v", c)
	})
}

// serves waits until the chain serves a version.
func (r *replica) serves(token string, version int) {
	r.t.Helper()
	r.chain(token, fmt.Sprintf("version %d", version), func(c chain) bool { return c.Version == version })
}

// putChain writes a version of the chain beside the page.
func (r *replica) putChain(percent, seen int) {
	r.t.Helper()
	body := fmt.Sprintf(`{"version":%d,"document":%s}`, seen, canary("vip", percent))
	if err := r.ask(http.MethodPut, "/v1/chains/canary", "", body, nil); err != nil {
		r.t.Fatal(err)
	}
}

// file writes a file that a line of the page names, and returns the line with its place.
func (p *tab) file(line, name, text string) string {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if !strings.Contains(line, name) {
		p.t.Errorf("the line is %s; want it to name %s", line, name)
	}
	return strings.Replace(line, name, file, 1)
}

const document = "The document, as JSON"

// TestChains: a chain is written, tried, shadowed, changed under the hands of another, rolled back
// and deleted by the page, and by the lines that it shows.
func TestChains(t *testing.T) {
	long(t)
	t.Parallel()
	r := newFleet(t).replica("r1", "")
	r.lists()
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/lists")
	p.the("link", "vip")
	p.press("g", "c")
	p.shows("There is no chain yet")
	p.accessible("no chain")
	p.fill("textbox", "Name of a chain", "canary")
	p.press("\r")
	p.shows("There is no such chain")

	p.refill(document, canary("none", 101))
	p.click("button", "Check")
	for _, fault := range []string{"Line 6", "rules[0].list", "Line 10", "rules[1].percent"} {
		p.shows(fault)
	}
	p.accessible("a document with faults")
	p.refill(document, strings.Replace(canary("vip", 5), `"share",`, `"share"`, 1))
	p.shows("This is no JSON")
	p.shows("Line 9")
	p.refill(document, canary("vip", 5))
	p.click("button", "Check")
	p.shows("The document is valid")
	p.confirm("Apply", "Apply the document")
	r.serves("", 1)
	if got := r.change("", "put-chain", "").Reason; got != "it's <b>late</b>" {
		t.Errorf("the audit has the reason %q; want the one that was typed", got)
	}
	p.the("button", "Delete")
	p.accessible("a chain")

	p.bench(r)
	p.shadows(r)
	p.chainConflict(r)
	p.back(r)

	p.click("button", "Delete")
	p.fill("textbox", "to confirm", "canary")
	p.fill("textbox", "Reason", "over")
	line := p.shown()
	p.click("button", "Delete")
	p.shows("There is no chain yet")
	r.putChain(5, 0)
	r.shell("", seenFlag.ReplaceAllString(line, ""))
	r.twice("", "put-chain", "shadow-chain", "rollback-chain", "delete-chain")
	p.clean(r.addr)
}

// bench tries subjects.
func (p *tab) bench(r *replica) {
	p.t.Helper()
	p.refill("Subjects", "1\n"+`{"key":"2","attributes":{"colour":"red"}}`)
	p.click("button", "Evaluate")
	p.shows("is not declared by the chain, expected age")
	p.shows("Line 2")
	subjects := "1\n" + `{"key":"<img src=x onerror=alert(1)>","attributes":{"age":30}}`
	p.refill("Subjects", subjects)
	p.click("button", "Evaluate")
	p.the("table", "Decisions")
	p.shows("testers")
	p.shows("default")
	p.fits("decisions")
	p.accessible("the test bench")
	r.shell("", p.file(p.ask("Test bench"), "subjects.jsonl", subjects))
}

// holds waits until the text of a field is as wanted.
func (p *tab) holds(name string, like func(text string) bool) {
	p.t.Helper()
	text := ""
	waittest.Until(p.t, "the field "+name+" as wanted", func() bool {
		text = p.value("textbox", name)
		return like(text)
	}, func() any { return text })
}

// shadows runs an edit as a shadow, and ends it.
func (p *tab) shadows(r *replica) {
	p.t.Helper()
	p.refill(document, canary("vip", 100))
	p.click("button", "Compare with the edit")
	p.shows("changes the outcome of 1 of 2 subjects, against version 1")
	begin := p.confirm("Run it beside", "Shadow chain canary")
	r.chain("", "a shadow", func(c chain) bool { return c.Shadow != nil })
	p.the("heading", "Shadow")
	p.accessible("a shadow")
	p.refill(document, canary("vip", 60))
	for _, button := range []string{"Take it into the editor", "Drop the edit"} {
		p.click("button", button)
		p.holds(document, func(text string) bool { return text != canary("vip", 60) })
		p.click("button", "Undo")
		p.holds(document, func(text string) bool { return text == canary("vip", 60) })
	}
	end := p.confirm("End it", "End the shadow")
	r.chain("", "no shadow", func(c chain) bool { return c.Shadow == nil })
	r.shell("", p.file(begin, "canary.json", canary("vip", 100)))
	r.shell("", end)
	p.gone("heading", "Shadow")
}

// chainConflict applies an edit while another one is written: the edit stays, and goes on from
// there.
func (p *tab) chainConflict(r *replica) {
	p.t.Helper()
	p.refill(document, canary("vip", 7))
	p.click("button", "Apply")
	p.the("dialog", "Apply the document")
	r.putChain(6, 1)
	line := p.shown()
	p.click("button", "Apply")
	p.shows("is at version 2")
	p.press("\x1b")
	p.gone("dialog", "Apply the document")
	p.shows("this edit was made from version 1")
	if got := p.value("textbox", document); got != canary("vip", 7) {
		p.t.Errorf("after a conflict the editor has %s; want the edit", got)
	}
	p.accessible("a conflict")
	p.click("button", "Go on from version 2")
	p.confirm("Apply", "Apply the document")
	r.serves("", 3)
	r.shell("", p.file(strings.Replace(line, "--seen=1", "--seen=3", 1), "canary.json", canary("vip", 8)))
	r.serves("", 4)
}

// back compares versions and goes back.
func (p *tab) back(r *replica) {
	p.t.Helper()
	p.click("link", "Version 1")
	p.shows("rules.share.percent")
	r.shell("", p.ask("Version 1"))
	p.click("button", "Close")
	line := p.confirm("Roll back to 3", "Roll chain canary back")
	r.serves("", 5)
	p.shows("restores 3")
	r.shell("", strings.NewReplacer("--seen=4", "--seen=5", "canary 3", "canary 1").Replace(line))
	r.serves("", 6)
	p.the("button", "Roll back to 5")
}

// TestChainRequests: a change that waits for approval leads to its request, which shows what it
// changes. The server refuses what the page greys.
func TestChainRequests(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFleet(t).withTokens()
	const other = "another-admin-of-32-characters-000"
	f.configuration["tokens"] = append(f.configuration["tokens"].([]map[string]any),
		map[string]any{"role": "admin", "token": other, "tenant": "others"})
	f.configuration["lists"] = map[string]any{"dir": t.TempDir(), "approval": map[string]any{"chains": true}}
	r := f.replica("r1", "")
	r.shell(tokens["admin"], "schedctl lists apply vip --expected 3")
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/chains/canary")
	p.signIn(tokens["admin"])
	p.refill(document, canary("vip", 5))
	p.confirm("Apply", "Apply the document")
	p.the("heading", "Request")
	p.the("textbox", "The document")
	p.accessible("a request of a chain")
	r.shell(other, "schedctl lists requests approve "+p.request(r))
	r.serves(tokens["admin"], 1)

	p.open(r.console() + "#/chains/canary")
	p.click("button", "Go on from version 1")
	p.refill(document, canary("vip", 6))
	p.confirm("Apply", "Apply the document")
	p.the("heading", "Request")
	p.shows(`"percent": 6`)
	p.shows("1 new line, 1 line less")

	viewer := newBrowser(t).tab(narrow)
	viewer.open(r.console() + "#/chains/canary")
	viewer.signIn(tokens["viewer"])
	for _, button := range []string{"Apply", "Run it beside", "Delete"} {
		if n := viewer.the("button", button); !strings.Contains(n.name, "Only for") {
			t.Errorf("a viewer's button is %q; want it to say who may", n.name)
		}
	}
	viewer.fits("a chain")
	r.refuses(t)
}

// request returns the id of the request that the page shows.
func (p *tab) request(r *replica) string {
	p.t.Helper()
	var page struct{ Requests []struct{ ID string } }
	if err := r.get("/v1/list-requests?open=true", tokens["admin"], &page); err != nil || len(page.Requests) != 1 {
		p.t.Fatalf("the requests are %+v, %v; want one", page, err)
	}
	return page.Requests[0].ID
}

// refuses tries what actions of lists and chains ask with the tokens of roles that may not.
func (r *replica) refuses(t *testing.T) {
	t.Helper()
	for call, roles := range map[string]string{
		"PUT /v1/chains/canary": "viewer client tenant-operator", "POST /v1/chains/canary/rollback": "viewer client tenant-operator",
		"POST /v1/chains/canary/shadow": "viewer client tenant-operator", "DELETE /v1/chains/canary?version=1": "viewer client tenant-operator",
		"POST /v1/lists/vip/entries": "viewer client", "POST /v1/lists/vip/switch": "viewer client",
		"POST /v1/lists/vip/freeze": "viewer client tenant-operator", "POST /v1/lists/vip/unfreeze": "viewer client tenant-operator",
		"POST /v1/lists/vip/cancel": "viewer client", "DELETE /v1/lists/vip": "viewer client",
		"POST /v1/lists/vip/versions/1/accept": "viewer client", "POST /v1/lists/vip/uploads": "viewer client",
		"PUT /v1/lists/vip/source": "viewer client tenant-operator", "POST /v1/lists/vip/source/run": "viewer client tenant-operator",
		"PUT /v1/list-applications/shop":    "viewer client operator",
		"POST /v1/list-requests/x/approve":  "viewer client tenant-operator operator",
		"POST /v1/list-requests/x.0/reject": "viewer client",
	} {
		method, path, _ := strings.Cut(call, " ")
		for _, role := range strings.Fields(roles) {
			if err := r.ask(method, path, tokens[role], "{}", nil); err == nil || !strings.Contains(err.Error(), "status 403") {
				t.Errorf("%s by a %s is answered %v; want status 403", call, role, err)
			}
		}
	}
}
