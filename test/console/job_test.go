package console

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// change is an entry of the audit.
type change struct {
	Call, Target, Outcome, Reason, Role string
}

// change waits for the entry of a call about a job.
func (r *replica) change(token, call, id string) (found change) {
	r.t.Helper()
	waittest.Succeeds(r.t, "an entry of "+call+" in the audit", func() error {
		var page struct{ Entries []change }
		if err := r.get("/v1/audit?call="+call+"&target="+id, token, &page); err != nil {
			return err
		}
		if len(page.Entries) != 1 {
			return fmt.Errorf("it has %+v", page.Entries)
		}
		found = page.Entries[0]
		return nil
	})
	return found
}

// twice waits until the audit has at least two entries of each call with a reason that was typed:
// one by the page, and one by the line of its dialog.
func (r *replica) twice(token string, calls ...string) {
	r.t.Helper()
	for _, call := range calls {
		waittest.Succeeds(r.t, "two entries of "+call+" in the audit", func() error {
			var page struct{ Entries []change }
			if err := r.get("/v1/audit?call="+call, token, &page); err != nil {
				return err
			}
			typed := 0
			for _, e := range page.Entries {
				if e.Outcome == "done" && e.Reason != "" && e.Reason != "undo" {
					typed++
				}
			}
			if typed < 2 {
				return fmt.Errorf("it has %+v", page.Entries)
			}
			return nil
		})
	}
}

// shown returns the schedctl line of the dialog, or of the view without one.
func (p *tab) shown() string {
	p.t.Helper()
	return p.line(`(document.querySelector("dialog[open]") || document.querySelector("main")).querySelector(".command:last-of-type code")`)
}

// line returns a line that the page shows in the element, without the page's address: shell gives
// the same.
func (p *tab) line(element string) string {
	p.t.Helper()
	whole := eval[[]string](p, "["+element+`.innerText, " --server=" + location.href.replace(/\/console\/.*/, "")]`)
	if !strings.HasPrefix(whole[0], "schedctl"+whole[1]+" ") {
		p.t.Errorf("the page shows %q; want it to begin with schedctl%s", whole[0], whole[1])
	}
	return strings.Replace(whole[0], whole[1], "", 1)
}

// shell runs a line that the page shows, as a user who copies it.
func (r *replica) shell(token, line string) string {
	r.t.Helper()
	cmd := exec.CommandContext(waittest.Context(r.t), "sh", "-c", line)
	cmd.Env = append(ownEnvironment(), "FREESLOT_SERVER=http://"+r.addr, "FREESLOT_TOKEN="+token,
		"PATH="+programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("%s: %v; want success\n%s", line, err, out)
	}
	return string(out)
}

// TestJobs: a job is found by a filter, and its detail tells what happened to it.
func TestJobs(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	ids := f.busy(r, "")
	p := newBrowser(t).tab(wide)
	p.open(r.console())
	p.the("navigation", "Views")
	p.press("g", "j")
	p.the("heading", "Jobs")
	for _, id := range ids {
		p.the("link", id)
	}

	// Keys that come faster than the page is drawn all count.
	const fast = `(() => {
		for (const key of ["j", "j", "j", "j", "k"]) document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
		return Number(document.activeElement.closest("[data-row]")?.dataset.row ?? -1);
	})()`
	if row := eval[int](p, fast); row != 2 {
		t.Errorf("after j j j j k at once the cursor is on row %d; want 2", row)
	}

	n := p.the("combobox", "State")
	on[bool](p, n, `function() { this.value = "dead"; this.dispatchEvent(new Event("change", {bubbles: true})); return true; }`)
	p.the("link", ids["dead"])
	p.gone("link", ids["running"])
	if at := eval[string](p, "location.hash"); at != "#/jobs?state=dead" {
		t.Errorf("the address is %s; want the filter in it", at)
	}
	if line := p.shown(); line != "schedctl list --state=dead" {
		t.Errorf("the view shows %s; want the same filter", line)
	} else if out := r.shell("", line); !strings.Contains(out, ids["dead"]) || strings.Contains(out, ids["running"]) {
		t.Errorf("%s prints\n%s; want the dead job alone", line, out)
	}
	elsewhere := "FREESLOT_SERVER=http://127.0.0.1:1 "
	if out := r.shell("", elsewhere+eval[string](p, `document.querySelector("main > .view > .command code").innerText`)); !strings.Contains(out, ids["dead"]) {
		t.Errorf("the whole line of the view prints\n%s; want what the page's replica has", out)
	}
	p.open(eval[string](p, "location.href")) // as shared with someone else
	p.the("link", ids["dead"])

	keyed := r.submit("", `{"service":"echo","idempotency_key":"order 7"}`)
	p.press("/")
	p.fill("combobox", "A job's id or key", "order 7")
	p.click("option", "job by idempotency key")
	p.the("link", keyed)
	p.gone("link", ids["dead"])
	if line := p.shown(); !strings.Contains(r.shell("", line), keyed) {
		t.Errorf("the view shows %s; want a line that finds job %s", line, keyed)
	}
	p.open(r.console() + "#/jobs?state=dead")

	p.row(ids["dead"])
	p.press("\r")
	p.shows("the model \"m7\" is gone")
	p.shows("2 failures")
	p.shows("attempt 2")
	p.click("button", "Show submission")
	p.shows(`"m7"`)
	p.open(r.console() + "#/jobs/" + ids["succeeded"])
	p.click("button", "Show result")
	p.shows(`"hello": "world"`)
	p.shows(`"n": 9007199254740993`) // which no number of JavaScript holds
	p.open(r.console() + "#/jobs/0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")
	p.shows("not found")
	p.clean(r.addr)
}

// TestJobActionsCarefully: a dialog that is left changes nothing, and neither does one with a wrong
// name. A double click acts once.
func TestJobActionsCarefully(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	ids := f.busy(r, "")
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/jobs/" + ids["failed"])
	p.click("button", "Drop")
	p.fill("textbox", "to confirm", "AAAAAA")
	p.fill("textbox", "Reason", "by mistake")
	if disabled := on[bool](p, p.the("button", "Drop"), `function() { return this.disabled; }`); !disabled {
		t.Error("a wrong name is accepted; want a greyed button")
	}
	p.press("\x1b")
	p.gone("dialog", "Forget")

	p.click("button", "Requeue")
	p.the("dialog", ids["failed"])
	on[bool](p, p.the("button", "Requeue"), `function() { this.click(); this.click(); return true; }`)
	p.shows("Submitted again as")
	if err := r.get("/v1/jobs/"+ids["failed"], "", nil); err != nil {
		t.Error(err)
	}
	r.change("", "requeue-job", ids["failed"]) // one entry

	p.stalePage(f, r, ids)
}

// stalePage opens dialogs, changes what they are about, and confirms them: the replica refuses
// that, the page says so, and nothing has changed.
func (p *tab) stalePage(f *fleet, r *replica, ids map[string]string) {
	p.t.Helper()
	r.lists()
	imported := filepath.Join(p.t.TempDir(), "nodes.json")
	if err := os.WriteFile(imported, []byte(`[{"node_id":"node-late","max_concurrency":1}]`), 0o600); err != nil {
		p.t.Fatal(err)
	}
	r.shell("", "schedctl nodes import "+imported+" --redis-url "+f.redis.URL())
	r.nodes("", 3)
	ours := func(path string) (text string) {
		var answer json.RawMessage
		if err := r.get(path, "", &answer); err != nil {
			return "status 404"
		}
		return string(answer)
	}
	for _, c := range []struct {
		view, button, typed, call, outcome string
		meanwhile                          func()
		path                               string // what must stay as it is meanwhile
	}{
		{
			"#/jobs/" + ids["dead"], "Requeue", "", "requeue-job", "not_found",
			func() { r.shell("", "schedctl drop "+ids["dead"]) }, "/v1/jobs?state=dead",
		},
		{
			"#/jobs/" + ids["waiting"], "Cancel job", "", "cancel-job", "conflict",
			func() {
				r.shell("", "schedctl cancel "+ids["running"])
				r.state("", ids["waiting"], "running")
			}, "/v1/jobs/" + ids["waiting"],
		},
		{
			"#/nodes/node-late", "Remove", "node-late", "remove-node", "conflict",
			func() {
				f.node(freeslot.Node{ID: "node-late", MaxConcurrency: 1, Services: services("late")})
				waittest.Succeeds(p.t, "the agent", func() error {
					var node struct{ Status string }
					if err := r.get("/v1/nodes/node-late", "", &node); err != nil || node.Status == "online" {
						return err
					}
					return fmt.Errorf("the node is %s", node.Status)
				})
			}, "",
		},
		{
			"#/lists/vip?version=2", "Switch to 2", "", "switch-list", "conflict",
			func() {
				ids := filepath.Join(p.t.TempDir(), "ids.txt")
				if err := os.WriteFile(ids, []byte("1\n2\n3\n9\n"), 0o600); err != nil {
					p.t.Fatal(err)
				}
				r.shell("", "schedctl lists import vip "+ids+" --note late && schedctl lists switch vip 3")
				r.list("another switch", func(l list) bool { return l.Serving.Number == 3 && l.State == "active" })
			}, "/v1/lists/vip",
		},
	} {
		p.open(eval[string](p, `location.href.split("#")[0]`) + c.view)
		p.click("button", c.button)
		p.the("textbox", "Reason")
		if c.typed != "" {
			p.fill("textbox", "to confirm", c.typed)
		}
		p.fill("textbox", "Reason", why)
		c.meanwhile()
		before := ""
		if c.path != "" {
			before = ours(c.path)
		}
		p.click("button", c.button)
		p.the("alert", "")
		p.accessible("a refusal of " + c.call)
		if c.path != "" && ours(c.path) != before {
			p.t.Errorf("%s by a stale page makes\n%s\nof\n%s\nwant it unchanged", c.button, ours(c.path), before)
		}
		var audit struct{ Entries []change }
		if err := r.get("/v1/audit?call="+c.call, "", &audit); err != nil || len(audit.Entries) == 0 || audit.Entries[0].Outcome != c.outcome {
			p.t.Errorf("the audit has %+v, %v; want %s refused as %s last", audit.Entries, err, c.call, c.outcome)
		}
		p.press("\x1b")
		p.gone("dialog", "")
	}
	if err := r.get("/v1/nodes/node-late", "", nil); err != nil {
		p.t.Errorf("the node whose agent came is not there: %v; want it kept", err)
	}
}
