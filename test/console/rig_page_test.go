package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// keep writes a file into the folder of the test's leftovers.
func keep(t *testing.T, name string, data []byte) {
	t.Helper()
	file := filepath.Join(leftovers, filepath.FromSlash(t.Name()), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
		err = os.WriteFile(file, data, 0o600)
		if err == nil {
			t.Logf("kept %s", file)
		}
	}
}

// node is something in the accessibility tree.
type node struct {
	name string
	id   cdp.BackendNodeID
}

// find returns what has the role and a name that contains the text.
func (p *tab) find(role, name string) (found []node) {
	document, err := chromedp.Call(p.ctx, runtime.Evaluate, runtime.EvaluateParams{Expression: "document"})
	if err != nil {
		return nil // the page is being replaced
	}
	all, _ := chromedp.Call(p.ctx, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{
		ObjectID: document.Result.ObjectID, Role: role,
	})
	for _, n := range all.Nodes {
		if n.Ignored || n.Name == nil {
			continue
		}
		var text string
		if err := json.Unmarshal(n.Name.Value, &text); err == nil && strings.Contains(text, name) {
			found = append(found, node{text, n.BackendDOMNodeID})
		}
	}
	return found
}

// the waits for the one thing with the role and a name that contains the text. Of several the one
// whose name is the text counts.
func (p *tab) the(role, name string) node {
	p.t.Helper()
	var one node
	waittest.Until(p.t, fmt.Sprintf("one %s %q", role, name), func() bool {
		found := p.find(role, name)
		if len(found) == 1 {
			one = found[0]
			return true
		}
		exact := 0
		for _, n := range found {
			if n.name == name {
				one = n
				exact++
			}
		}
		return exact == 1
	})
	return one
}

// gone waits until nothing has the role and the name any more.
func (p *tab) gone(role, name string) {
	p.t.Helper()
	waittest.Until(p.t, fmt.Sprintf("no %s %q", role, name), func() bool { return len(p.find(role, name)) == 0 })
}

// on calls a function with the node as this.
func on[T any](p *tab, n node, function string) T {
	p.t.Helper()
	object := call(p, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: n.id}).Object
	out, err := chromedp.Run(p.ctx, chromedp.CallFunctionOn[T](function, func(c *runtime.CallFunctionOnParams) {
		c.ObjectID = object.ObjectID
	}))
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// click presses the mouse in the middle of the thing, as a user would: what lies over it gets the
// click.
func (p *tab) click(role, name string) {
	p.t.Helper()
	at := on[[]float64](p, p.the(role, name), `function() { this.scrollIntoView({block: "center"});
		const r = this.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }`)
	p.do(chromedp.MouseClickXY(at[0], at[1]))
}

// fill types text into an empty field.
func (p *tab) fill(role, name, text string) {
	p.t.Helper()
	on[bool](p, p.the(role, name), `function() { this.focus(); return true; }`)
	call(p, input.InsertText, input.InsertTextParams{Text: text})
}

// value returns what a field holds.
func (p *tab) value(role, name string) string {
	p.t.Helper()
	return on[string](p, p.the(role, name), `function() { return this.value; }`)
}

// press sends keys, one after the other.
func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, r := range strings.Join(keys, "") {
		events := kb.Encode(r)
		down, up := events[0], events[len(events)-1]
		if len(events) == 3 { // its text goes with the key: a page that prevents the key then gets no text
			down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		call(p, input.DispatchKeyEvent, *down)
		call(p, input.DispatchKeyEvent, *up)
	}
}

// row presses j and k until the first row of a table that contains the text has the focus.
func (p *tab) row(text string) {
	p.t.Helper()
	way := fmt.Sprintf(`(() => {
		const to = [...document.querySelectorAll("[data-row]")].find((r) => r.innerText.includes(%q));
		const at = document.activeElement.closest("[data-row]");
		return to ? Number(to.dataset.row) - Number(at ? at.dataset.row : -1) : 1;
	})()`, text)
	waittest.Until(p.t, "the focus on the row of "+text, func() bool {
		left := eval[int](p, way)
		if left > 0 {
			p.press("j")
		} else if left < 0 {
			p.press("k")
		}
		return left == 0
	})
}

// text returns all text of the page.
func (p *tab) text() string { return eval[string](p, "document.body.innerText") }

// shows waits until the page has the text.
func (p *tab) shows(text string) {
	p.t.Helper()
	waittest.Until(p.t, fmt.Sprintf("a page with %q", text), func() bool { return strings.Contains(p.text(), text) })
}

// lacks waits until the page does not have the text any more.
func (p *tab) lacks(text string) {
	p.t.Helper()
	waittest.Until(p.t, fmt.Sprintf("a page without %q", text), func() bool { return !strings.Contains(p.text(), text) })
}

// seq returns the number of the topic's push that the page has drawn last, 0 before the first.
func (p *tab) seq(topic string) int {
	p.t.Helper()
	return eval[int](p, fmt.Sprintf("Number(document.documentElement.getAttribute('data-seq-%s') || 0)", topic))
}

// pushed waits until the page has drawn a push of the topic after the number.
func (p *tab) pushed(topic string, after int) int {
	p.t.Helper()
	now := 0
	waittest.Until(p.t, fmt.Sprintf("a push of %s after %d", topic, after), func() bool {
		now = p.seq(topic)
		return now > after
	})
	return now
}

// clean fails the test if a script was refused or failed, or anything but the replicas was asked.
func (p *tab) clean(hosts ...string) {
	p.t.Helper()
	if got := eval[[]string](p, "window.violations"); len(got) > 0 {
		p.t.Errorf("the page violates its security policy: %q; want nothing", got)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		_, address, _ := strings.Cut(r, " ")
		own := strings.HasPrefix(address, "data:") || address == "about:blank"
		for _, h := range hosts {
			own = own || strings.HasPrefix(address, "http://"+h+"/") || strings.HasPrefix(address, "ws://"+h+"/")
		}
		if !own {
			p.t.Errorf("the page asks %s; want its replica alone", address)
		}
	}
	for _, s := range p.said {
		if strings.HasPrefix(s, "exception") || strings.HasPrefix(s, "security") {
			p.t.Errorf("the browser says %s; want nothing", s)
		}
	}
}
