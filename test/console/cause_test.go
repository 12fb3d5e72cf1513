package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// reach presses Tab until the control with this name has the focus.
func (p *tab) reach(name string) {
	p.t.Helper()
	waittest.Until(p.t, "the focus on "+name, func() bool {
		p.press("\t")
		return strings.HasPrefix(eval[string](p, "document.activeElement.innerText || ''"), name)
	})
}

// TestFindTheCause: five jobs wait for five reasons. From the overview each reason is on the screen
// in three steps by the keyboard alone: the list, the row, the job. Where the page offers a mend,
// it works.
func TestFindTheCause(t *testing.T) {
	t.Parallel()
	f := newFleet(t).withTokens()
	f.configuration["tenants"] = map[string]any{tenant: map[string]any{"max_running": 1}}
	r := f.replica("r1", "")
	admin, client := tokens["admin"], tokens["client"]

	old := f.node(freeslot.Node{ID: "node-old", MaxConcurrency: 1, Services: []freeslot.Service{{Name: "hold", Version: "1.4.0"}}})
	f.node(freeslot.Node{ID: "node-new", MaxConcurrency: 8, Services: []freeslot.Service{{Name: "hold", Version: "2.0.0"}, {Name: "echo"}}})
	f.node(freeslot.Node{ID: "node-eu", MaxConcurrency: 2, Services: services("break")})
	f.node(freeslot.Node{ID: "node-fr", MaxConcurrency: 2, Services: services("fail")})
	r.nodes(admin, 4)
	for _, c := range []struct{ method, path, body string }{
		{http.MethodPut, "/v1/config", `{"version":0,"config":{"enabled":true,"pools":[{"id":"eu","members":["node-eu"]}]}}`},
		{http.MethodPost, "/v1/pools/eu/pause", `{}`},
		{http.MethodPost, "/v1/nodes/node-fr/drain", `{}`},
	} {
		if err := r.ask(c.method, c.path, admin, c.body, nil); err != nil {
			t.Fatal(err)
		}
	}
	const version = `{"service":"hold","requirement":{"services":["hold@<2"]}}`
	r.state(admin, r.submit(admin, version), "running")
	gone := r.submit(admin, version)
	r.state(admin, gone, "waiting")
	if err := old.Stop(waittest.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.nodes(admin, 3)
	const keyed = `{"service":"hold","concurrency_key":"camera-1","requirement":{"services":["hold@>=2"]}}`
	r.state(admin, r.submit(admin, keyed), "running")
	r.state(client, r.submit(client, `{"service":"hold","requirement":{"services":["hold@>=2"]}}`), "running")

	p := newBrowser(t).tab(wide)
	p.open(r.console())
	p.signIn(admin)
	p.the("heading", "Overview")
	for _, c := range []struct{ name, id, why, mend string }{
		{"its version is gone", gone, "service version", ""},
		{"its pool is paused", r.submit(admin, `{"service":"break","requirement":{"pool":"eu"}}`), "pool eu is paused", "Resume"},
		{"max_running", r.submit(client, `{"service":"hold","requirement":{"services":["hold@>=2"]}}`), "max_running", ""},
		{"fitting nodes drained", r.submit(admin, `{"service":"fail"}`), "draining", "Undrain"},
		{"its concurrency key", r.submit(admin, keyed), "concurrency_key", ""},
	} {
		t.Log(c.name)
		p.press("g", "o")
		p.the("heading", "Overview")
		p.press("g", "j") // the first step
		p.the("link", c.id)
		p.row(c.id)   // the second
		p.press("\r") // the third
		p.the("heading", c.id)
		p.the("region", "Why it waits")
		p.shows(c.why)
		if c.mend == "" {
			continue
		}
		p.reach(c.mend)
		p.press("\r")
		p.the("dialog", c.mend)
		p.press("\r") // the reason has the focus; Enter sends the form
		p.gone("dialog", c.mend)
		waittest.Until(t, "job "+c.id+" to wait no more", func() bool {
			var job struct{ State string }
			return r.get("/v1/jobs/"+c.id, admin, &job) == nil && job.State != "waiting"
		})
	}
}
