package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// browser is a Chromium as one test uses it.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// chromium is the process that all running tests share, because its start takes longer than most
// of them: each page has cookies of its own.
var chromium struct {
	mu    sync.Mutex // guards the fields that follow
	users int
	ctx   context.Context
	stop  func()
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	chromium.mu.Lock()
	defer chromium.mu.Unlock()
	if chromium.users == 0 {
		startChromium(t)
	}
	chromium.users++
	t.Cleanup(func() {
		chromium.mu.Lock()
		defer chromium.mu.Unlock()
		if chromium.users--; chromium.users == 0 {
			chromium.stop()
		}
	})
	return &browser{t, chromium.ctx}
}

// startChromium starts the process. The caller holds chromium.mu.
func startChromium(t *testing.T) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("these tests need chromium; `make console-test` installs it: %v", err)
	}
	profile, err := os.MkdirTemp("", "freeslot-console-test-")
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	)
	if os.Getuid() == 0 { // Chromium's sandbox refuses root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	chromium.ctx = ctx
	chromium.stop = func() {
		cancel()
		stop()
		_ = os.RemoveAll(profile)
	}
	if err := chromedp.Do(ctx); err != nil {
		chromium.stop()
		t.Fatalf("start chromium: %v", err)
	}
}

// watched notes what the browser sees of the page's violations of its security policy.
const watched = `window.violations = [];
addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI));`

// tab is a page of the browser. Its cookies are its own, unless beside made it.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string // the console's address, where a test sets it

	mu       sync.Mutex
	requests []string // method and address, in order
	bytes    float64  // of all answers, as they came over the network
	said     []string // by the console, exceptions and the browser's own log
}

// tab opens an empty page without cookies. width is in CSS pixels.
func (b *browser) tab(width int64) *tab {
	b.t.Helper()
	return b.open(width, chromedp.WithNewBrowserContext())
}

// beside opens a further page with the same cookies.
func (p *tab) beside() *tab {
	p.t.Helper()
	return (&browser{p.t, p.ctx}).open(wide)
}

// wide is the width of a window on a desk, narrow of one on a phone.
const wide, narrow = 1280, 360

func (b *browser) open(width int64, options ...chromedp.ContextOption) *tab {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, options...)
	p := &tab{t: b.t, ctx: ctx}
	b.t.Cleanup(cancel)
	b.t.Cleanup(func() {
		if p.t.Failed() {
			p.leave()
		}
	})
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		p.t.Fatalf("open a page: %v", err)
	}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watched})
	p.do(chromedp.EmulateViewport(width, 900))
	return p
}

func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.Method+" "+e.Request.URL)
	case *network.EventWebSocketCreated:
		p.requests = append(p.requests, "SOCKET "+e.URL)
	case *network.EventLoadingFinished:
		p.bytes += e.EncodedDataLength
	case *runtime.EventConsoleAPICalled:
		var text []string
		for _, a := range e.Args {
			text = append(text, string(a.Value)+a.Description)
		}
		p.said = append(p.said, string(e.Type)+": "+strings.Join(text, " "))
	case *runtime.EventExceptionThrown:
		p.said = append(p.said, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		p.said = append(p.said, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *page.EventJavascriptDialogOpening:
		p.said = append(p.said, "exception: a script opened a dialog: "+e.Message)
	}
}

// soon bounds a call to the browser, whose page may hang.
func (p *tab) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, waittest.Limit)
}

func (p *tab) do(action chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := p.soon()
	defer cancel()
	if err := chromedp.Do(ctx, action); err != nil {
		p.t.Fatal(err)
	}
}

// call runs a command of the debugging protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	ctx, cancel := p.soon()
	defer cancel()
	out, err := chromedp.Call(ctx, command, params)
	if err != nil {
		p.t.Fatalf("call %s: %v", command.Method, err)
	}
	return out
}

// open loads an address, waits until the document has loaded, and returns its status.
func (p *tab) open(address string) int64 {
	p.t.Helper()
	ctx, cancel := p.soon()
	defer cancel()
	answer, err := chromedp.RunResponse(ctx, chromedp.Navigate(address))
	if err != nil {
		p.t.Fatalf("open %s: %v", address, err)
	}
	if answer == nil { // a change of the fragment loads nothing
		return 0
	}
	return answer.Status
}

// eval returns the value of an expression, for which it waits if it is a promise.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := p.soon()
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("evaluate %.200s: %v", expression, err)
	}
	return out
}

// leave keeps what helps to find out why the test failed.
func (p *tab) leave() {
	ctx, cancel := p.soon()
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	document, err2 := chromedp.Run(ctx, chromedp.Evaluate[string]("document.documentElement.outerHTML"))
	if err := errors.Join(err, err2); err != nil {
		p.t.Logf("the page cannot be kept whole: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, data := range map[string][]byte{
		"page.png": picture, "page.html": []byte(document),
		"console.log": []byte(strings.Join(p.said, "\n")), "network.log": []byte(strings.Join(p.requests, "\n")),
	} {
		keep(p.t, name, data)
	}
}
