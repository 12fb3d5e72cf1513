package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// asked returns how many requests and connections the page has made.
func (p *tab) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

// calm fails the test if the page has asked more than a few times since an incident.
func (p *tab) calm(incident string, before int) {
	p.t.Helper()
	const most = 12
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.requests[before:]
	p.t.Logf("%s: %d requests", incident, len(since))
	if len(since) > most {
		p.t.Errorf("after %s the page asks %d times: %q; want at most %d", incident, len(since), since, most)
	}
}

// TestReplicaDies: below a path of a proxy, the page goes on with another replica, says when none
// is left, and recovers by itself. It is never loaded anew, and keeps what is typed.
func TestReplicaDies(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r1, r2 := f.replica("r1", ""), f.replica("r2", "")
	ids := f.busy(r1, "")
	b := newBalancer(t, "/ops/freeslot", r1, r2)
	p := newBrowser(t).tab(wide)
	p.open(b.console())
	p.pushed("overview", 0)
	p.shows("at r1")
	eval[bool](p, "window.same = true")

	p.press("g", "j")
	p.click("link", ids["failed"])
	p.click("button", "Requeue")
	p.fill("textbox", "Reason", "typed before")
	before := p.asked()
	r1.kill()
	waittest.Until(t, "the page at r2", func() bool { return eval[bool](p, `document.body.textContent.includes("r2")`) })
	if got := p.value("textbox", "Reason"); got != "typed before" {
		t.Errorf("the reason is %q after a replica died; want what was typed", got)
	}
	p.calm("a replica died", before)
	r2.kill()
	waittest.Until(t, "a page that is stale", func() bool { return strings.HasPrefix(p.link(), "stale since") })
	back := f.replica("r3", "")
	b.replicas.Store(&[]*replica{back})
	waittest.Until(t, "a page that is live again", func() bool { return p.link() == "live" })
	if got := p.value("textbox", "Reason"); got != "typed before" {
		t.Errorf("the reason is %q after an outage; want what was typed", got)
	}
	p.click("button", "Requeue")
	p.shows("Submitted again as")
	if got := back.change("", "requeue-job", ids["failed"]); got.Reason != "typed before" {
		t.Errorf("the audit has the reason %q; want what was typed", got.Reason)
	}
	if !eval[bool](p, "window.same === true") {
		t.Error("the page was loaded anew; want the same")
	}
	p.clean(strings.TrimPrefix(b.server.URL, "http://"))
}

// TestRedisStops: the page says so, keeps what it showed, and recovers without being loaded anew.
func TestRedisStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 1, Services: services("echo")})
	r.nodes("", 1)
	p := newBrowser(t).tab(wide)
	p.open(r.console())
	p.shows("All is well")
	eval[bool](p, "window.same = true")
	followed := p.beside()
	followed.open(r.console() + "#/replicas")
	followed.shows("1 replica,")
	before := p.asked()
	f.redis.Kill()
	p.shows("Redis does not answer")
	followed.shows("Last known state")
	followed.shows("1 replica,")
	p.accessible("an outage of Redis")
	p.shoot("outage-light-1280")

	// In an outage the page still loads.
	late := p.beside()
	late.open(r.console())
	late.shows("Redis does not answer")

	f.redis.Restart()
	p.lacks("Redis does not answer")
	late.lacks("Redis does not answer")
	followed.lacks("Last known state")
	p.shows("All is well")
	p.calm("Redis stopped and came back", before)
	if !eval[bool](p, "window.same === true") {
		t.Error("the page was loaded anew; want the same")
	}
	p.clean(r.addr)
}

// TestUpgrade: when a replica is drained and one of another release serves the page, the page says
// so within two pushes, is not loaded anew, and keeps what is typed, which can still be sent.
func TestUpgrade(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFleet(t)
	r1 := f.replica("r1", "")
	r2 := f.otherRelease().replica("r2", "")
	ids := f.busy(r1, "")
	b := newBalancer(t, "", r1, r2)
	p := newBrowser(t).tab(wide)
	p.open(b.console() + "#/jobs/" + ids["failed"])
	p.pushed("job", 0)
	p.shows("at r1")
	p.lacks("another release")
	eval[bool](p, "window.same = true")
	p.click("button", "Requeue")
	p.fill("textbox", "Reason", "typed before")
	before := p.asked()
	r1.stop()
	waittest.Until(t, "the page at r2", func() bool { return p.link() == "live" && eval[bool](p, `document.body.textContent.includes("at r2")`) })
	p.pushed("job", p.pushed("job", 0)) // its numbers begin anew at another replica
	if text := eval[string](p, "document.body.textContent"); !strings.Contains(text, "runs another release") ||
		!strings.Contains(text, other) {
		t.Errorf("two pushes after the upgrade the page says %q; want it to name the release %s", text, other)
	}
	p.calm("an upgrade", before)
	p.accessible("another release")
	if got := p.value("textbox", "Reason"); got != "typed before" {
		t.Errorf("the reason is %q after an upgrade; want what was typed", got)
	}
	p.click("button", "Requeue")
	p.shows("Submitted again as")
	if got := r2.change("", "requeue-job", ids["failed"]); got.Reason != "typed before" {
		t.Errorf("the audit has the reason %q; want what was typed", got.Reason)
	}
	if !eval[bool](p, "window.same === true") {
		t.Error("the page was loaded anew; want the same")
	}
	p.clean(strings.TrimPrefix(b.server.URL, "http://"))
}

// shifted makes the browser's clock differ, and lets a test hide the page.
const shifted = `window.shift = 600000;
const real = Date;
window.Date = class extends real {
	constructor(...parts) { if (parts.length) super(...parts); else super(real.now() + window.shift); }
	static now() { return real.now() + window.shift; }
};
window.away = false;
Object.defineProperty(document, "hidden", {get: () => window.away});
window.leave = (away) => { window.away = away; document.dispatchEvent(new Event("visibilitychange")); return true; };`

// off returns by how many minutes the clock in the page's header is off.
func (p *tab) off() int {
	p.t.Helper()
	var hour, minute int
	shown := eval[string](p, `document.querySelector("header .zone").textContent`)
	if _, err := fmt.Sscanf(shown, "%d:%d", &hour, &minute); err != nil {
		p.t.Fatalf("the page shows the time %q; want one such as 12:34", shown)
	}
	now := time.Now()
	if strings.HasSuffix(shown, "UTC") {
		now = now.UTC()
	}
	apart := hour*60 + minute - now.Hour()*60 - now.Minute()
	const day = 24 * 60
	return (apart+day+day/2)%day - day/2
}

// TestClockAndBackground: times are right although the browser's clock is ten minutes off, and when
// it is set while the page is open. A page in the background asks for nothing, and shows what is
// new within two pushes when it is seen again.
func TestClockAndBackground(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 1, Services: services("echo")})
	r.nodes("", 1)
	p := newBrowser(t).tab(wide)
	call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: shifted})
	p.open(r.console())
	p.shows("All is well")
	eval[bool](p, "window.same = true")
	if off := p.off(); off < -1 || off > 1 {
		t.Errorf("with a clock that is 10 minutes ahead, the page is %d minutes off; want none", off)
	}
	before := p.asked()
	eval[bool](p, "window.shift = -600000, true")
	waittest.Until(t, "the page to notice that the browser's clock was set", func() bool { return p.asked() > before })
	waittest.Until(t, "the right time after the browser's clock was set", func() bool {
		off := p.off()
		return off >= -1 && off <= 1
	})
	p.calm("a clock was set", before)

	eval[bool](p, "leave(true)")
	before = p.asked()
	r.post("/v1/services/echo/pause", "{}")
	r.submit("", `{"service":"echo"}`)
	waittest.Until(t, "the finding of a paused queue", func() bool {
		var page struct{ Findings []struct{} }
		return r.get("/v1/findings", "", &page) == nil && len(page.Findings) > 0
	})
	if !strings.Contains(p.text(), "All is well") || p.asked() != before {
		t.Errorf("a page in the background has asked %d times, and says\n%s\nwant it to rest", p.asked()-before, p.text())
	}
	seen := p.seq("overview")
	eval[bool](p, "leave(false)")
	p.pushed("overview", p.pushed("overview", seen))
	if text := p.text(); strings.Contains(text, "All is well") || !strings.Contains(text, "something is paused") {
		t.Errorf("two pushes after %d the page that is seen again says at %d\n%s\nwant the finding", seen, p.seq("overview"), text)
	}
	p.calm("a page is seen again", before)
	if !eval[bool](p, "window.same === true") {
		t.Error("the page was loaded anew; want the same")
	}
	p.clean(r.addr)
}
