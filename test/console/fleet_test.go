package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// light registers nodes without agents, which then give one sign of life, all at once, and no
// further one.
func (f *fleet) light(n int) {
	f.t.Helper()
	option, err := rueidis.ParseURL(f.redis.URL())
	if err != nil {
		f.t.Fatal(err)
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		f.t.Fatal(err)
	}
	defer client.Close()
	c, err := cell.New(cell.Config{}, client, zap.NewNop(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx := waittest.Context(f.t)
	if err := c.Start(ctx); err != nil {
		f.t.Fatal(err)
	}
	epoch := cell.NewEpoch()
	name := func(i int) string { return fmt.Sprintf("light-%04d", i) }
	for _, call := range []func(i int) error{
		func(i int) error {
			_, err := c.Register(ctx, freeslot.Node{
				ID: name(i), MaxConcurrency: 4, Services: services("echo"), Labels: map[string]string{"rack": fmt.Sprint(i % 7)},
			}, epoch)
			return err
		},
		func(i int) error {
			_, err := c.Heartbeat(ctx, cell.Heartbeat{
				Node: name(i), Epoch: epoch, Status: freeslot.StatusOnline, Resources: fmt.Appendf(nil, `{"cpu_usage":0.%02d}`, i%100),
			})
			return err
		},
	} {
		var all sync.WaitGroup
		failed := make([]error, n)
		for i := range n {
			all.Go(func() { failed[i] = call(i) })
		}
		all.Wait()
		if err := errors.Join(failed...); err != nil {
			f.t.Fatal(err)
		}
	}
	_ = c.Stop(context.WithoutCancel(ctx))
}

// online waits until the replica has that many nodes that are online.
func (r *replica) online(want int) {
	r.t.Helper()
	waittest.Succeeds(r.t, fmt.Sprintf("%d nodes online", want), func() error {
		var page struct {
			Nodes  []struct{ Silent bool }
			Cursor string
		}
		found := 0
		for path := "/v1/nodes?connections=false"; path != ""; {
			page.Nodes, page.Cursor = nil, ""
			if err := r.get(path, "", &page); err != nil {
				return err
			}
			for _, n := range page.Nodes {
				if !n.Silent {
					found++
				}
			}
			if path = ""; page.Cursor != "" {
				path = "/v1/nodes?connections=false&cursor=" + page.Cursor
			}
		}
		if found != want {
			return fmt.Errorf("the replica has %d", found)
		}
		return nil
	})
}

// legend returns how many nodes of a state the map counts.
func (p *tab) legend(state string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf(`[...document.querySelectorAll(".legend > span")]
		.map((s) => s.innerText.trim()).find((s) => s.startsWith(%q)).slice(%d).replace(/\D/g, "")`, state, len(state)))
}

// TestFleetLost: a thousand nodes that are lost at once are so on the page after at most two
// pushes. It is not loaded anew, and asks nothing of the replica meanwhile but the nodes once.
func TestFleetLost(t *testing.T) {
	long(t)
	t.Parallel()
	const lost = 1000
	f := newFleet(t)
	r := f.replica("r1", "")
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 1, Services: services("echo")})
	r.nodes("", 1)
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/fleet?group=label&label=rack")
	p.the("application", "Map of 1 node")
	eval[bool](p, "window.same = true")
	f.light(lost)
	r.online(lost + 1)
	p.the("application", "Map of 1\u202f001 nodes by slots used")
	p.the("heading", "without rack 1")
	p.theme("light")
	p.accessible("the map of 1,001 nodes")
	p.shoot("fleet-1001-light-1280")
	p.theme("dark")
	p.open(r.console() + "#/fleet?group=label&label=rack&by=cpu")
	p.the("application", "by processor")
	p.accessible("the map of 1,001 nodes in the dark")
	p.shoot("fleet-1001-dark-1280")
	p.theme("light")
	p.do(chromedp.EmulateViewport(1100, 760))
	p.picture("fleet")
	p.do(chromedp.EmulateViewport(wide, 900))
	p.theme("dark")
	p.mu.Lock()
	before := len(p.requests)
	p.mu.Unlock()
	r.online(1)
	p.pushed("fleet", p.pushed("fleet", p.seq("fleet")))
	if got := p.legend("online"); got != "1" {
		t.Errorf("two pushes after %d nodes are lost the map has %s online; want 1", lost, got)
	}
	p.shoot("fleet-lost-dark-1280")
	r.nodes("", 1) // the others are reaped
	p.the("application", "Map of 1 node by")
	p.mu.Lock()
	asked := p.requests[before:]
	p.mu.Unlock()
	if len(asked) > 0 {
		t.Errorf("meanwhile the page asks %q; want nothing", asked)
	}
	if !eval[bool](p, "window.same === true") {
		t.Error("the page was loaded anew; want the same")
	}
	p.clean(r.addr)
}

// TestFleetMap: the cursor is read out and stays over a reload, the map follows the fleet, and a
// rectangle of nodes is drained by a plan.
func TestFleetMap(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	f.busy(r, "")
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/fleet?group=service")
	p.the("application", "Map of 2 nodes")
	p.the("heading", "echo, break, fail 1")
	eval[bool](p, `document.querySelector("[role=application]").focus(), true`)
	p.press(kb.ArrowRight)
	p.shows("node-en: online, 0 of 4 slots")
	p.press(kb.ArrowDown)
	p.shows("node-de: online, 1 of 1 slots")
	address := eval[string](p, "location.href")
	p.open("about:blank")
	p.open(address)
	p.shows("node-de: online, 1 of 1 slots")

	if err := r.ask(http.MethodPost, "/v1/nodes/node-en/drain", "", "{}", nil); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a drained node in the legend", func() bool { return p.legend("drained") == "1" })
	if err := r.ask(http.MethodPost, "/v1/nodes/node-en/undrain", "", "{}", nil); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "no drained node in the legend", func() bool { return p.legend("drained") == "0" })

	// One view of nodes takes over from another.
	p.press("g", "n")
	p.the("heading", "Nodes")
	p.shows("2 of 2 nodes")
	p.lacks("gone")
	if px := eval[float64](p, headsOff); px > 0.5 {
		t.Errorf("the heads of columns are up to %g px off their cells; want 0", px)
	}
	p.press("g", "f")
	p.the("application", "Map of 2 nodes")

	// By keyboard, and by the mouse over the whole map.
	eval[bool](p, `document.querySelector("[role=application]").focus(), true`)
	p.press(kb.ArrowRight)
	p.shows("node-de: online")
	p.do(chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(chromedp.ModifierShift)))
	p.shows("2 nodes chosen")
	p.press("\x1b")
	p.lacks("nodes chosen")
	p.drains(r)
	p.open(r.console() + "#/nodes?status=drained")
	p.shows("2 of 2 nodes")
	p.clean(r.addr)
}

// headsOff is by how many pixels texts of heads that sort stand beside those of their columns.
const headsOff = `Math.max(...[...document.querySelectorAll(".table .head button")].map((b) => {
	const cell = b.parentElement, side = cell.classList.contains("end") ? "right" : "left", text = document.createRange();
	text.selectNode(b.firstChild);
	return Math.abs(text.getBoundingClientRect()[side] - cell.getBoundingClientRect()[side]);
}))`

// drains drains the nodes in a rectangle and takes that back, by the page and by the lines that it
// shows. Drained they stay.
func (p *tab) drains(r *replica) {
	p.t.Helper()
	all := []struct {
		button, verb, status string
		byLine               bool
	}{
		{"Drain…", "drain", "drained", true},
		{"Undrain…", "undrain", "online", false},
		{"Undrain…", "undrain", "online", true}, // of nodes that are not drained
		{"Drain…", "drain", "drained", false},
	}
	if testing.Short() {
		all = all[3:]
	}
	for i, c := range all {
		p.choose(r)
		p.click("button", c.button)
		p.shows("2 nodes, fixed now")
		p.accessible("the plan of a " + c.verb)
		plan := p.shown()
		if want := "schedctl bulk plan " + c.verb + " node-de node-en"; plan != want {
			p.t.Errorf("the page shows %q; want %q", plan, want)
		}
		p.click("button", "Start")
		p.fill("textbox", "to confirm", "2")
		p.fill("textbox", "Reason", why)
		if c.byLine {
			r.shell("", plan)
			r.shell("", p.line(last+`.querySelector(".command code")`))
			p.press("\x1b")
			p.press("\x1b")
			p.gone("dialog", "")
		} else {
			p.press("\r")
			p.the("heading", c.verb+" 2 nodes")
		}
		for _, id := range []string{"node-de", "node-en"} {
			waittest.Succeeds(p.t, fmt.Sprintf("%s to be %s", id, c.status), func() error {
				var n struct{ Status string }
				if err := r.get("/v1/nodes/"+id, "", &n); err != nil || n.Status == c.status {
					return err
				}
				return fmt.Errorf("it is %s", n.Status)
			})
		}
		var log struct{ Entries []change }
		if err := r.get("/v1/audit?call=start-bulk", "", &log); err != nil || len(log.Entries) != i+1 || log.Entries[0].Reason != why {
			p.t.Errorf("the audit has %+v (%v); want %d starts with the reason", log.Entries, err, i+1)
		}
	}
}

// choose chooses both nodes of the map by the mouse.
func (p *tab) choose(r *replica) {
	p.t.Helper()
	p.open(r.console() + "#/fleet?group=service")
	p.the("application", "Map of 2 nodes")
	const plane = `(() => { const r = document.querySelector(".plane").getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; })()`
	waittest.Until(p.t, "2 nodes chosen", func() bool {
		at := eval[[]float64](p, plane)
		p.drag(at[0]+1, at[1]+1, at[2]-1, at[3]-1)
		return strings.Contains(p.text(), "2 nodes chosen")
	})
	p.accessible("chosen nodes")
	p.click("button", "As a table")
	p.the("table", "Nodes")
}

// drag draws a rectangle with the mouse.
func (p *tab) drag(left, top, right, bottom float64) {
	p.t.Helper()
	p.do(chromedp.MouseEvent(chromedp.MousePressed, left, top, chromedp.ButtonLeft))
	p.do(chromedp.MouseEvent(chromedp.MouseMoved, right, bottom, chromedp.ButtonLeft))
	p.do(chromedp.MouseEvent(chromedp.MouseReleased, right, bottom, chromedp.ButtonLeft))
}
