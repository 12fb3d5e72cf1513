package console

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// axeSource is the accessibility checker, from console/package-lock.json.
var axeSource = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "console", "node_modules", "axe-core", "axe.min.js"))
	return string(text), err
})

// accessible fails the test if the page has a violation of WCAG 2.2 AA that axe finds.
func (p *tab) accessible(what string) {
	p.t.Helper()
	source, err := axeSource()
	if err != nil {
		p.t.Fatalf("%v; want the packages of console/, which `make console-test` installs", err)
	}
	eval[bool](p, source+"; true")
	for _, v := range eval[[]string](p, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
		.then((r) => r.violations.flatMap((v) => v.nodes.map((n) =>
			v.id + ": " + n.target.join(" ") + ": " + (n.failureSummary || "").replace(/\s+/g, " "))))`) {
		p.t.Errorf("%s: axe finds %s; want no violations", what, v)
	}
}

// fits fails the test if the page is wider than its window.
func (p *tab) fits(what string) {
	p.t.Helper()
	if over := eval[int](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		p.t.Errorf("%s: the page is %d px wider than its window; want none", what, over)
	}
}

// theme makes the browser prefer a colour scheme.
func (p *tab) theme(name string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// loaded waits until the view of the address shows data.
func (p *tab) loaded() {
	p.t.Helper()
	waittest.Until(p.t, "the view of the address", func() bool {
		const there = `document.documentElement.dataset.view === location.hash && document.querySelector("main h1") !== null`
		return eval[bool](p, there)
	})
	p.gone("status", "Loading")
}

// shoot keeps a picture of the window.
func (p *tab) shoot(name string) {
	p.t.Helper()
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(leftovers, "views", strings.TrimPrefix(name, "-")+".png")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, picture, 0o600); err != nil {
		p.t.Fatal(err)
	}
}
