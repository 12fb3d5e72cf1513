package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// configured is what the tests look at in the configuration of pools.
type configured struct {
	Version uint64
	Note    string
	Config  struct {
		Policy string
		Pools  []struct{ ID string }
		Paused struct{ Pools []string }
	}
}

// pools waits until the configuration has the version, and returns it.
func (r *replica) pools(version uint64) (c configured) {
	r.t.Helper()
	waittest.Succeeds(r.t, fmt.Sprintf("version %d of the configuration", version), func() error {
		if err := r.get("/v1/config", tokens["admin"], &c); err != nil || c.Version == version {
			return err
		}
		return fmt.Errorf("it is at %d", c.Version)
	})
	return c
}

// poolsOf returns a document with a pool for each zone, in lines as an editor has them.
func poolsOf(settings string, zones ...string) string {
	var pools []string
	for _, z := range zones {
		pools = append(pools, fmt.Sprintf("    {\"id\": %q, \"labels\": {\"zone\": %q}}", z, z))
	}
	return fmt.Sprintf("{\n  \"enabled\": true,\n  %s\n  \"pools\": [\n%s\n  ]\n}", settings, strings.Join(pools, ",\n"))
}

// TestPools: the document is edited with its faults at their lines, what it would do is shown
// before it is applied, a change by another loses nothing, and a version can be put in force again.
func TestPools(t *testing.T) {
	t.Parallel()
	f := newFleet(t).withTokens()
	r := f.replica("r1", "")
	for i := range 10 {
		f.node(freeslot.Node{ID: fmt.Sprint("node-", i), MaxConcurrency: 1, Labels: map[string]string{"zone": "eu"}})
	}
	r.nodes(tokens["admin"], 10)
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/pools")
	p.signIn(tokens["admin"])
	p.shows("There is no pool")
	p.click("link", "Document")
	p.the("textbox", "The document")

	p.refill("The document", poolsOf(`"mode": "flat"`, "eu")) // no comma
	p.click("button", "Check what changes")
	p.the("button", "Line 4")
	p.refill("The document", poolsOf(`"mode": "round",`, "eu"))
	p.click("button", "Check what changes")
	p.shows("config.mode")
	p.accessible("a document with a fault")
	p.click("button", "Line 3")
	const selected = `(() => { const a = document.activeElement; return a.value.slice(a.selectionStart, a.selectionEnd); })()`
	if got := eval[string](p, selected); got != `  "mode": "round",` {
		t.Errorf("the fault leads to %q; want its line", got)
	}

	p.refill("The document", poolsOf(`"policy": "binpack",`, "eu"))
	p.click("button", "Check what changes")
	p.shows("10 nodes change pool")
	p.accessible("what a document changes")
	p.click("button", "Apply")
	p.fill("textbox", "to confirm", "10")
	p.fill("textbox", "Reason", why)
	p.accessible("the dialog of a wide change")
	p.click("button", "Apply")
	p.shows("Version 1 is in force")
	if c := r.pools(1); c.Note != why || len(c.Config.Pools) != 1 {
		t.Errorf("the configuration is %+v; want the pool, with the note", c)
	}

	p.conflict(r)
	p.versions(r)
	p.pool(r)
	p.open(r.console() + "#/audit?call=put-config&outcome=dry_run")
	p.shows("dry run") // what was checked, and not applied
	p.clean(r.addr)

	viewer := newBrowser(t).tab(narrow)
	viewer.open(r.console() + "#/pools?part=document")
	viewer.signIn(tokens["viewer"])
	if n := viewer.the("button", "Apply"); !strings.Contains(n.name, "Only for admin") {
		t.Errorf("a viewer's button is %q; want it to say who may", n.name)
	}
	viewer.fits("the document")
}

// conflict edits while another applies by the line that the dialog shows. The text stays, and goes
// on from the newest version.
func (p *tab) conflict(r *replica) {
	p.t.Helper()
	mine := poolsOf(`"policy": "binpack",`, "eu", "us")
	p.refill("The document", mine)
	p.click("button", "Discard the edit")
	p.holds("The document", func(text string) bool { return text != mine })
	p.click("button", "Undo")
	p.holds("The document", func(text string) bool { return text == mine })
	p.click("button", "Check what changes")
	p.shows("not there")
	p.click("button", "Apply")
	p.the("dialog", "Apply the document")
	p.fill("textbox", "Reason", why)
	line := p.shown()
	p.press("\x1b")
	p.gone("dialog", "")
	file := filepath.Join(p.t.TempDir(), "pools.json")
	if err := os.WriteFile(file, []byte(poolsOf(`"policy": "least_loaded",`, "eu")), 0o600); err != nil {
		p.t.Fatal(err)
	}
	r.shell(tokens["admin"], strings.Replace(line, "pools.json", file, 1))
	r.pools(2)

	p.click("button", "Apply")
	p.the("dialog", "Apply the document")
	p.click("button", "Apply")
	p.shows("the configuration is at 2")
	p.press("\x1b")
	p.gone("dialog", "")
	p.shows("Version 2 came meanwhile")
	p.accessible("a conflict")
	if got := p.value("textbox", "The document"); got != mine {
		p.t.Errorf("the document is %q after a conflict; want what was typed, %q", got, mine)
	}
	p.click("button", "Go on from version 2")
	p.click("button", "Check what changes")
	p.shows("not there")
	p.click("button", "Apply")
	p.the("dialog", "Apply the document")
	p.click("button", "Apply")
	p.shows("Version 3 is in force")
	if c := r.pools(3); len(c.Config.Pools) != 2 || c.Config.Policy != "binpack" {
		p.t.Errorf("the configuration is %+v; want what was typed", c)
	}
}

// versions compares two versions, and rolls back by the page and by its line.
func (p *tab) versions(r *replica) {
	p.t.Helper()
	p.open(r.console() + "#/pools?part=history")
	p.shows("ops") // the tenant of the token
	p.accessible("the history of pools")
	p.open(r.console() + "#/pools?part=history&version=1&with=2")
	p.shows(`"policy": "binpack"`)
	p.shows("pool us")
	p.accessible("a version of pools")
	line := p.confirm("Roll back", "Roll back to version 1")
	p.shows("with the content of version 1")
	if c := r.pools(4); len(c.Config.Pools) != 1 {
		p.t.Errorf("the configuration is %+v; want the one pool of version 1", c)
	}
	r.shell(tokens["admin"], strings.NewReplacer("--seen=3", "--seen=4", " 1", " 3").Replace(line))
	r.pools(5)
	r.twice(tokens["admin"], "put-config", "rollback-config")
}

// pool pauses a pool.
func (p *tab) pool(r *replica) {
	p.t.Helper()
	p.open(r.console() + "#/pools/eu")
	p.the("link", "node-3")
	p.accessible("a pool")
	line := p.confirm("Pause", "Pause pool eu")
	p.click("button", "Dismiss") // which offers to resume, too
	p.gone("button", "Dismiss")
	if c := r.pools(6); len(c.Config.Paused.Pools) != 1 {
		p.t.Errorf("the configuration is %+v; want the pool paused", c)
	}
	p.confirm("Resume", "Resume pool eu")
	p.the("button", "Pause")
	r.pools(7)
	r.shell(tokens["admin"], line)
	r.pools(8)
}

// TestScheduleEdit: a schedule shows its next runs before it is saved, faults stand where they
// are, and a change by another loses nothing.
func TestScheduleEdit(t *testing.T) {
	long(t)
	t.Parallel()
	r := newFleet(t).withTokens().replica("r1", "")
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/schedules")
	p.signIn(tokens["client"])
	p.click("link", "New schedule")
	p.fill("textbox", "Name", planName)
	p.fill("textbox", "When, as cron", "61 4 1 1 *")
	p.refill("Time zone", "Asia/Kolkata")
	p.refill("Its job", "{\n  \"service\": \"echo\",\n  \"slots\": -1\n}")
	p.click("button", "Show the next runs")
	p.shows("cron is")
	p.the("button", "Line 3")
	p.accessible("a schedule with faults")
	p.refill("Its job", `{"service": "echo", "payload": {"id": 12345678901234567890}}`)
	p.refill("When, as cron", "30 4 1 1 *")
	p.typeMeanwhile()
	p.click("button", "Show the next runs")
	p.the("heading", "The next 5 runs")
	p.accessible("the next runs of a schedule")
	p.confirm("Save", "Make schedule")
	p.comingRuns(r)

	p.click("link", "Edit")
	p.refill("When, as cron", "45 4 1 1 *")
	p.click("button", "Show the next runs")
	p.the("heading", "The next 5 runs")
	p.click("button", "Save")
	p.the("dialog", "Change schedule")
	line := p.shown()
	p.press("\x1b")
	p.gone("dialog", "")
	file := filepath.Join(t.TempDir(), "plan.json")
	other := `{"name":"` + planName + `","cron":"0 5 1 1 *","time_zone":"Asia/Kolkata","job":{"service":"echo"}}`
	if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	r.shell(tokens["client"], strings.Replace(line, planName+".json", file, 1))
	p.click("button", "Save")
	p.the("dialog", "Change schedule")
	p.click("button", "Save")
	p.shows("the schedule is at 2")
	p.press("\x1b")
	p.gone("dialog", "")
	p.shows("Version 2 came meanwhile")
	p.accessible("a conflict of schedules")
	if got := p.value("textbox", "When, as cron"); got != "45 4 1 1 *" {
		t.Errorf("the field has %q after a conflict; want what was typed", got)
	}
	p.click("button", "Go on from version 2")
	p.click("button", "Show the next runs")
	p.the("heading", "The next 5 runs")
	p.confirm("Save", "Change schedule")
	var saved struct {
		Cron    string
		Version uint64
		Job     struct{ Payload json.RawMessage }
	}
	if err := r.get("/v1/schedules/"+planName, tokens["client"], &saved); err != nil || saved.Version != 3 || saved.Cron != "45 4 1 1 *" ||
		!strings.Contains(string(saved.Job.Payload), "12345678901234567890") {
		t.Errorf("the schedule is %+v, %v; want the edit at version 3, with the long number", saved, err)
	}
	r.twice(tokens["admin"], "put-schedule")
	p.clean(r.addr)
}

// typeMeanwhile types while the next runs of a schedule are on their way. Then they can be asked
// for again.
func (p *tab) typeMeanwhile() {
	p.t.Helper()
	eval[bool](p, `(() => {
		const fetched = window.fetch, held = new Promise(go => { window.letGo = go; });
		window.fetch = async (...args) => { await held; window.fetch = fetched; return fetched(...args); };
		return true;
	})()`)
	p.click("button", "Show the next runs")
	p.refill("Missed after, in ms", "90000")
	eval[bool](p, "window.letGo(), true")
	waittest.Until(p.t, "a button that works again", func() bool {
		return eval[bool](p, `[...document.querySelectorAll("button:enabled")].some(b => b.textContent === "Show the next runs")`)
	})
}

// TestTenants: tenants show what they use of their limits and what holds them back. A client sees
// its own.
func TestTenants(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFleet(t).withTokens()
	f.configuration["tenants"] = map[string]any{tenant: map[string]any{"max_running": 1}, "ops": map[string]any{}}
	r := f.replica("r1", "")
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 4, Services: services("hold")})
	r.nodes(tokens["admin"], 1)
	for range 3 {
		r.submit(tokens["client"], `{"service":"hold"}`)
	}
	b := newBrowser(t)
	p := b.tab(wide)
	p.open(r.console() + "#/tenants")
	p.signIn(tokens["viewer"])
	p.shows("max running")
	p.the("link", "ops")
	p.shows("1 of 1")
	r.shell(tokens["viewer"], p.shown())
	p.click("link", tenant)
	p.the("heading", "Limits")
	p.accessible("a tenant")
	r.shell(tokens["viewer"], p.shown())
	p.click("link", "Its jobs that are waiting")
	p.the("heading", "Jobs")
	p.clean(r.addr)

	own := newBrowser(t).tab(narrow)
	own.open(r.console() + "#/tenants")
	own.signIn(tokens["client"])
	own.the("link", tenant)
	own.lacks("ops")
	own.fits("tenants")
}
