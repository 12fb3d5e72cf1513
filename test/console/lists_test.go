package console

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/dom"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// hostileID is an id that must neither run nor overflow.
var hostileID = `<img src=x onerror=alert(1)>` + "\u202e" + strings.Repeat("long", 20)

// list is what the tests look at in a list.
type list struct {
	State   string
	Edits   int
	Serving struct{ Number int }
}

// lists makes the list vip with two versions, the first of which serves.
func (r *replica) lists() {
	r.t.Helper()
	r.shell("", "schedctl lists apply vip --expected 3")
	for n, ids := range []string{"1\n2\n3\n", "1\n2\n3\n4\n"} {
		file := filepath.Join(r.t.TempDir(), "ids.txt")
		if err := os.WriteFile(file, []byte(ids), 0o600); err != nil {
			r.t.Fatal(err)
		}
		line := "schedctl lists import vip " + file + " --note '<b>hi</b>'"
		if n == 0 {
			line += " --switch"
		}
		r.shell("", line)
	}
}

// has returns an error if the list does not answer so.
func (r *replica) has(id string, want bool) error {
	var answer struct{ Found []struct{ Member bool } }
	body := fmt.Sprintf(`{"ids":[%q]}`, id)
	if err := r.ask("POST", "/v1/lists/vip/query", "", body, &answer); err != nil {
		return err
	}
	if len(answer.Found) != 1 || answer.Found[0].Member != want {
		return fmt.Errorf("the list answers %+v for %s; want %v", answer.Found, id, want)
	}
	return nil
}

// list waits until the list is as it should be.
func (r *replica) list(what string, is func(l list) bool) {
	r.t.Helper()
	waittest.Succeeds(r.t, what, func() error {
		var l list
		if err := r.get("/v1/lists/vip", "", &l); err != nil || is(l) {
			return err
		}
		return fmt.Errorf("it is %+v", l)
	})
}

// confirm does an action by its dialog and returns the line that the dialog shows.
func (p *tab) confirm(button, name string) string {
	p.t.Helper()
	p.click("button", button)
	p.the("dialog", name)
	p.fill("textbox", "Reason", "it's <b>late</b>")
	line := p.shown()
	p.theme("dark") // views are looked at in both themes
	p.accessible("the dialog of " + button)
	p.theme("light")
	p.click("button", button)
	p.gone("dialog", name)
	return line
}

// refill replaces the text of a field.
func (p *tab) refill(name, text string) {
	p.t.Helper()
	on[bool](p, p.the("textbox", name), `function() { this.value = ""; this.dispatchEvent(new Event("input", {bubbles: true})); return true; }`)
	p.fill("textbox", name, text)
}

// TestLists: each action of a list works by the page, and by the line that its dialog shows.
func TestLists(t *testing.T) {
	t.Parallel()
	r := newFleet(t).replica("r1", "")
	r.lists()
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/lists")
	p.the("link", "vip")
	p.accessible("the lists")
	p.click("link", "Requests")
	p.shows("No change waits for approval")
	p.accessible("requests")
	p.applications(r)
	p.click("link", "All lists")
	p.the("link", "vip")
	p.click("link", "vip")
	p.the("heading", "Versions")
	p.accessible("a list")

	p.refill("Ids to add or remove", hostileID)
	line := p.confirm("Add", "Add 1 id")
	waittest.Succeeds(t, "the added id", func() error { return r.has(hostileID, true) })
	if got := r.change("", "edit-list", "").Reason; got != "it's <b>late</b>" {
		t.Errorf("the audit has the reason %q; want the one that was typed", got)
	}
	p.click("button", "Undo")
	waittest.Succeeds(t, "the undone edit", func() error { return r.has(hostileID, false) })
	r.shell("", line)
	waittest.Succeeds(t, "the id that the line adds", func() error { return r.has(hostileID, true) })

	p.refill("Ids to ask for", "1\n"+hostileID+"\nnope")
	p.click("button", "Ask")
	p.shows("by version 1")
	p.shows("by an edit")
	p.fits("answers with hostile ids")
	r.shell("", p.ask("Is an id in it?"))

	p.refill("Ids to add or remove", "1")
	line = p.confirm("Remove", "Remove 1 id")
	waittest.Succeeds(t, "the removed id", func() error { return r.has("1", false) })
	p.click("button", "Undo")
	waittest.Succeeds(t, "the id that is back", func() error { return r.has("1", true) })
	r.shell("", line)
	waittest.Succeeds(t, "the id that the line removes", func() error { return r.has("1", false) })

	p.click("link", "Version 2")
	p.click("button", "Compare")
	p.shows("Added: 1")
	line = p.confirm("Switch to 2", "Switch vip")
	r.list("the switch", func(l list) bool { return l.Serving.Number == 2 && l.State == "active" })
	line2 := p.confirm("Roll back to 1", "Roll back vip")
	r.list("the rollback", func(l list) bool { return l.Serving.Number == 1 && l.State == "active" })
	r.shell("", line)
	r.list("the switch by the line", func(l list) bool { return l.Serving.Number == 2 && l.State == "active" })
	r.shell("", line2)
	r.list("the rollback by the line", func(l list) bool { return l.Serving.Number == 1 && l.State == "active" })

	line = p.confirm("Freeze", "Freeze list vip")
	r.list("the freeze", func(l list) bool { return l.State == "frozen" })
	line2 = p.confirm("Unfreeze", "Unfreeze list vip")
	r.list("the end of the freeze", func(l list) bool { return l.State == "active" })
	r.shell("", line)
	r.shell("", line2)

	p.the("button", "Freeze")
	p.click("button", "Delete")
	p.fill("textbox", "to confirm", "vip")
	p.fill("textbox", "Reason", "over")
	p.click("button", "Delete")
	p.the("heading", "Lists")
	waittest.Succeeds(t, "the end of the list", func() error {
		if err := r.get("/v1/lists/vip", "", nil); err == nil || !strings.Contains(err.Error(), "status 404") {
			return fmt.Errorf("the list is still there: %w", err)
		}
		return nil
	})
	r.twice("", "edit-list", "switch-list", "freeze-list", "unfreeze-list", "put-application")
	p.clean(r.addr)
}

// ask returns the schedctl line of a panel.
func (p *tab) ask(panel string) string {
	p.t.Helper()
	return p.line(fmt.Sprintf("document.querySelector(`section[aria-label=%q] .command code`)", panel))
}

// applications registers an application by the page and by its line, and forgets it.
func (p *tab) applications(r *replica) {
	p.t.Helper()
	p.click("link", "Applications")
	p.the("heading", "Register an application")
	p.refill("Name", "shop")
	p.refill("Contact", "shop@<b>example</b>.com")
	p.refill("Names of its tokens", "till, web")
	line := p.confirm("Register", "Register application shop")
	p.the("link", "shop")
	p.accessible("applications")
	for _, again := range []bool{false, true} {
		var got struct {
			Contact string
			Tokens  []string
		}
		if err := r.get("/v1/list-applications/shop", "", &got); err != nil || got.Contact != "shop@<b>example</b>.com" ||
			strings.Join(got.Tokens, " ") != "till web" {
			p.t.Errorf("the application is %+v, %v; want what the form has", got, err)
		}
		if !again {
			p.click("link", "shop")
			p.click("button", "Forget")
			p.fill("textbox", "to confirm", "shop")
			p.fill("textbox", "Reason", "over")
			p.click("button", "Forget")
			p.shows("No application is registered")
			r.shell("", line)
		}
	}
}

// TestListImport: a file is sent by the page, which shows refused lines, and goes on with an upload
// that was interrupted.
func TestListImport(t *testing.T) {
	t.Parallel()
	r := newFleet(t).replica("r1", "")
	r.lists()
	ids := "1\n\n5\n6\n"
	file := filepath.Join(t.TempDir(), "ids.txt")
	if err := os.WriteFile(file, []byte(ids), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/lists/vip")
	call(p, dom.SetFileInputFiles, dom.SetFileInputFilesParams{
		Files: []string{file}, BackendNodeID: p.the("button", "A file of ids").id,
	})
	p.click("button", "Import")
	p.shows("ine 2: invalid id: it is empty") // the style sheet makes the first letter large
	p.shows("Version 3 has 3 ids.")
	p.accessible("an import")
	line := p.ask("Import a file")
	r.shell("", strings.Replace(line, "ids.txt", file, 1))
	p.the("link", "Version 4")

	var u struct{ ID string }
	if err := r.ask(http.MethodPost, "/v1/lists/vip/uploads", "", `{"format":"txt","switch":true}`, &u); err != nil {
		t.Fatal(err)
	}
	r.part(u.ID, ids[:3])
	p.click("button", "Go on with it")
	p.click("button", "Go on")
	p.the("link", "Version 5")
	p.click("link", "Version 5")
	p.shows("1 line of its file refused")
	p.clean(r.addr)
}

// part sends the beginning of an upload.
func (r *replica) part(id, bytes string) {
	r.t.Helper()
	sum := crc32.Checksum([]byte(bytes), crc32.MakeTable(crc32.Castagnoli))
	address := fmt.Sprintf("http://%s/v1/list-uploads/%s?offset=0&crc32c=%x", r.addr, id, sum)
	req, err := http.NewRequestWithContext(waittest.Context(r.t), http.MethodPut, address, strings.NewReader(bytes))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		r.t.Fatalf("the part is answered by %d: %s; want 200", answer.StatusCode, text)
	}
}

// TestListSource: a list is given a source, which runs by the page and by the line it shows.
func TestListSource(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFleet(t)
	file := filepath.Join(t.TempDir(), "source.txt")
	if err := os.WriteFile(file, []byte("1\n2\n7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.configuration = map[string]any{"lists": map[string]any{
		"dir":     t.TempDir(),
		"sources": map[string]any{"bucket": map[string]any{"kind": "file", "path": file, "format": "txt"}},
	}}
	r := f.replica("r1", "")
	r.lists()
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/lists/vip")
	n := p.the("combobox", "Its ids come from")
	on[bool](p, n, `function() { this.value = "bucket"; this.dispatchEvent(new Event("change", {bubbles: true})); return true; }`)
	give := p.confirm("Give it this source", "follow source bucket")
	run := p.confirm("Run now", "Run the source")
	waittest.Succeeds(t, "the id that the source has", func() error { return r.has("7", true) })
	p.shows("served")
	take := p.confirm("Take it away", "Take the source")
	p.the("combobox", "Its ids come from")
	for _, line := range []string{give, run, take} {
		r.shell("", line)
	}
	p.open(r.console() + "#/lists?part=sources")
	p.shows("No list has a source")
	p.accessible("sources")
	r.twice("", "set-list-source", "run-list-source", "unset-list-source")
	p.clean(r.addr)
}

// TestListRequests: an admin approves and rejects by the page what a tenant asks for.
func TestListRequests(t *testing.T) {
	long(t)
	t.Parallel()
	r := newFleet(t).withTokens().replica("r1", "")
	ask := func(name string) {
		body := fmt.Sprintf(`{"contact":"<b>%s</b>","revision":0}`, name)
		if err := r.ask(http.MethodPut, "/v1/list-applications/"+name, tokens["tenant-operator"], body, nil); err != nil {
			t.Fatal(err)
		}
	}
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/lists?part=requests")
	p.signIn(tokens["admin"])
	for _, c := range []struct{ name, button, state string }{
		{"shop", "Approve", "approved"},
		{"till", "Reject", "rejected"},
		{"desk", "Approve", "approved"},
		{"cash", "Reject", "rejected"},
	} {
		byLine := c.name == "desk" || c.name == "cash"
		ask(c.name)
		p.click("link", c.name)
		p.the("button", c.button)
		p.accessible("a request")
		if byLine {
			p.click("button", c.button)
			p.fill("textbox", "Reason", "fine")
			line := p.shown()
			p.press("\x1b")
			p.gone("dialog", c.name)
			r.shell(tokens["admin"], line)
		} else {
			p.confirm(c.button, c.name)
		}
		p.gone("button", c.button)
		p.gone("link", c.name)
		p.shows(c.state)
		p.click("button", "Close")
	}
	r.twice(tokens["admin"], "approve-request", "reject-request")
	p.clean(r.addr)
}
