package console

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
)

// views are the addresses of all views that the page links.
func (p *tab) views() []string {
	p.t.Helper()
	p.the("link", "Audit") // the last one: they come once the role is known
	return eval[[]string](p, `[...document.querySelectorAll("nav a")].map((a) => a.getAttribute("href"))`)
}

// TestViews: each view is accessible and fits its window, in each theme, wide and narrow.
func TestViews(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	ids := f.busy(r, "")
	r.shell("", "schedctl lists apply vip")
	r.putChain(5, 0)
	browser := newBrowser(t)
	for _, width := range []int64{wide, narrow} {
		p := browser.tab(width)
		p.open(r.console())
		all := p.views()
		for _, state := range []string{"dead", "waiting"} {
			all = append(all, "#/jobs/"+ids[state])
		}
		all = append(all, "#/pools?part=document", "#/schedules?new=1", "#/tenants/default", "#/chains/canary")
		for _, theme := range []string{"light", "dark"} {
			p.theme(theme)
			for _, view := range all {
				what := fmt.Sprintf("%s %s %d px", view, theme, width)
				p.open(r.console() + view)
				p.loaded()
				p.fits(what)
				p.accessible(what)
				name := cmp.Or(strings.NewReplacer("#/", "", "/", "-").Replace(view), "overview")
				if _, id, ok := strings.Cut(name, "-"); ok { // an id differs in each run
					name = strings.TrimSuffix(name, id) + "detail"
				}
				p.shoot(fmt.Sprintf("%s-%s-%d", name, theme, width))
			}
		}
		p.clean(r.addr)
		p.dialogs(width)
	}
}

// dialogs opens the dialogs that belong to the page or only show something, in each theme.
func (p *tab) dialogs(width int64) {
	p.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		for _, key := range []string{"?", "/"} {
			p.press(key)
			p.the("dialog", "")
			what := fmt.Sprintf("the dialog behind %s, %s, %d px", key, theme, width)
			p.accessible(what)
			p.fits(what)
			p.press("\x1b")
			p.gone("dialog", "")
		}
	}
}
