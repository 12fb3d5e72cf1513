package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

// hostile would run a script as markup, and turns the text around it about. shortHostile fits where
// texts are bounded.
const hostile = "<img src=x onerror=hacked=1><script>hacked=1</script>\u202egnp.exe\u2066'\"--></style>"

var shortHostile = hostile[:60]

// spoil makes things of all kinds with hostile texts, and returns the views that show one of them.
func (f *fleet) spoil(r *replica) (views []string) {
	f.t.Helper()
	node, service := "node-"+strings.Repeat("x", 40), strings.Repeat("s", 60)
	f.node(freeslot.Node{
		ID: node, MaxConcurrency: 1, Services: services("hold", "spoil", service), Labels: map[string]string{"gpu": shortHostile},
	})
	r.nodes("", 1)
	text := func(s string) string {
		quoted, err := json.Marshal(s)
		if err != nil {
			f.t.Fatal(err)
		}
		return string(quoted)
	}
	label := text(shortHostile)
	ended := r.submit("", `{"service":"spoil","payload":`+text(hostile+strings.Repeat("A", 1<<20))+`}`) // one line
	r.state("", ended, "failed")
	r.state("", r.submit("", `{"service":"hold","requirement":{"labels":{"gpu":`+label+`}}}`), "running")
	r.state("", r.submit("", `{"service":"`+service+`"}`), "waiting")
	waits := r.submit("", `{"service":"hold","concurrency_key":`+label+`,"requirement":{"labels":{"gpu":`+label+`}}}`)

	r.lists()
	reason := " --reason='" + strings.ReplaceAll(shortHostile, "'", `'\''`) + "'"
	r.shell("", "schedctl lists add vip"+strings.ReplaceAll(reason, "--reason", "--note")+reason+" -- '"+strings.ReplaceAll(hostile, "'", `'\''`)+"'")
	r.shell("", "schedctl nodes drain"+reason+" "+node)
	schedule := `{"cron":"30 4 1 1 *","time_zone":"Asia/Kolkata","job":{"service":"hold","payload":` + text(hostile) + `}}`
	var plan struct{ ID string }
	var queues paused
	for _, c := range []struct {
		method, path, body string
		out                any
	}{
		{http.MethodPut, "/v1/schedules/" + planName, schedule, nil},
		{http.MethodPut, "/v1/list-applications/shop", `{"contact":` + label + `,"revision":0}`, nil},
		{http.MethodPut, "/v1/config", `{"version":0,"note":` + label + `,"config":{"enabled":true,"pools":[{"id":"eu","members":[` + text(node) + `]}]}}`, nil},
		{http.MethodPost, "/v1/pools/eu/pause", `{"note":` + label + `}`, nil},
		{http.MethodPost, "/v1/bulk-plans", `{"action":"drop","filter":{"state":"failed"}}`, &plan},
		{http.MethodGet, "/v1/queues", "", &queues},
	} {
		if err := r.ask(c.method, c.path, "", c.body, c.out); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, q := range queues.Queues {
		views = append(views, "#/queues/"+q.Class)
	}
	return append(
		views, "#/jobs?tenant="+strings.Repeat("t", 500), "#/nowhere/"+hostile, "#/jobs/"+waits, "#/nodes/"+node, "#/lists/vip",
		"#/lists?part=applications", "#/schedules/"+planName+"?tenant=default", "#/bulk/"+plan.ID, "#/audit?target=/nodes", "#/jobs/"+ended,
	)
}

// TestHostileData: text from others is text in every view, in a dialog and in an error, and does
// not make the page wider.
func TestHostileData(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configuration = map[string]any{"limits": map[string]any{"max_payload_bytes": 2 << 20}}
	r := f.replica("r1", "")
	views := f.spoil(r)
	b := newBrowser(t)
	for _, width := range []int64{wide, narrow} {
		p := b.tab(width)
		p.open(r.console())
		shown := 0
		for _, view := range append(p.views(), views...) {
			p.open(r.console() + view)
			p.loaded()
			p.fits(view)
			if eval[bool](p, `"hacked" in window || document.querySelector("main img, dialog img, main script") !== null`) {
				t.Errorf("%s has made markup of data; want text", view)
			}
			if strings.Contains(p.text(), "onerror=hacked=1") {
				shown++
			}
		}
		if least := 5; shown < least {
			t.Errorf("%d views at %d px have shown hostile text; want at least %d", shown, width, least)
		}
		p.shows("onerror=hacked=1") // the job that ended
		p.click("button", "Show submission")
		p.shows("characters in all")
		p.fits("a payload in one line")
		p.click("button", "Drop")
		p.fill("textbox", "Reason", hostile)
		p.fits("a dialog")
		if eval[bool](p, `"hacked" in window || document.querySelector("main img, dialog img, main script") !== null`) {
			t.Error("the page has made markup of data; want text")
		}
		p.clean(r.addr)
	}
}
