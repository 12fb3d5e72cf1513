package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
)

const (
	windowWidth, windowHeight = 1280, 900
	pageLimit                 = time.Minute
	pagePoll                  = 20 * time.Millisecond
)

// browser is a Chromium of its own.
type browser struct {
	ctx  context.Context
	stop func()
}

// openBrowser starts Chromium. Where there is none, the part is left out.
func openBrowser(ctx context.Context, b *tool.Bench) *browser {
	path, err := exec.LookPath("chromium")
	if err != nil {
		tool.Check(fmt.Errorf("%w: %w", tool.ErrLeftOut, err))
	}
	folder := tool.Must(os.MkdirTemp(b.Folder, "chromium-"))
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(folder), chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("enable-precise-memory-info", true),
	)
	if os.Getuid() == 0 { // Chromium's sandbox refuses root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(ctx, options...)
	of, cancel := chromedp.NewContext(allocator)
	stop := func() {
		cancel()
		end()
		_ = os.RemoveAll(folder) // the tool's folder goes, too
	}
	if err := chromedp.Do(of); err != nil {
		stop()
		tool.Check(fmt.Errorf("start chromium: %w", err))
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err == nil {
		b.Result.Servers += ", " + string(out[:max(len(out)-1, 0)])
	}
	return &browser{ctx: of, stop: stop}
}

// tab is a page with a cache and cookies of its own.
type tab struct {
	ctx   context.Context
	close func()

	mu       sync.Mutex // guards what the browser reports
	requests int
	bytes    float64
	events   func(any)
}

// tab opens an empty page. script, if any, runs before those of each document.
func (b *browser) tab(script string) *tab {
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &tab{ctx: ctx, close: cancel}
	err := tool.Try(func() {
		tool.Check(chromedp.Listen(ctx, p.hear))
		ask(p, network.Enable, network.EnableParams{})
		if script != "" {
			ask(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		}
		tool.Check(chromedp.Do(ctx, chromedp.EmulateViewport(windowWidth, windowHeight)))
	})
	if err != nil {
		cancel()
		tool.Check(err)
	}
	return p
}

// end closes the page, for tool.End.
func (p *tab) end() error { p.close(); return nil }

func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests++
	case *network.EventLoadingFinished:
		p.bytes += e.EncodedDataLength
	default:
		if p.events != nil {
			p.events(event)
		}
	}
}

// traffic returns the requests so far, without WebSockets, and the bytes of their answers as they
// came over the network.
func (p *tab) traffic() (requests int, bytes float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.bytes
}

// ask calls a command of the debugging protocol.
func ask[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	ctx, cancel := context.WithTimeout(p.ctx, pageLimit)
	defer cancel()
	return tool.Must(chromedp.Call(ctx, command, params))
}

// open loads an address.
func (p *tab) open(address string) {
	ctx, cancel := context.WithTimeout(p.ctx, pageLimit)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.Navigate(address))
	tool.Check(err)
}

// eval returns the value of an expression, for which it waits if it is a promise.
func eval[T any](p *tab, expression string) T {
	ctx, cancel := context.WithTimeout(p.ctx, pageLimit)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		tool.Check(fmt.Errorf("evaluate %.200s: %w", expression, err))
	}
	return out
}

// until waits until an expression is true in the page.
func (p *tab) until(expression string) {
	for end := time.Now().Add(pageLimit); !eval[bool](p, expression); {
		if time.Now().After(end) {
			tool.Check(fmt.Errorf("the page has not come to %s; it shows %.500q", expression, eval[string](p, "document.body.innerText")))
		}
		tool.Check(measure.SleepUntil(p.ctx, time.Now().Add(pagePoll)))
	}
}
