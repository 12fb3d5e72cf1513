package console

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestFinding: the overview says that all is well, shows a finding within two pushes once the
// replica has it, and forgets it as soon.
func TestFinding(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 1, Services: services("echo")})
	r.nodes("", 1)
	p := newBrowser(t).tab(wide)
	p.open(r.console())
	p.shows("All is well")
	for _, c := range []struct {
		call string
		any  bool
	}{{"pause", true}, {"resume", false}} {
		if err := r.ask(http.MethodPost, "/v1/services/echo/"+c.call, "", "{}", nil); err != nil {
			t.Fatal(err)
		}
		if c.any {
			r.submit("", `{"service":"echo"}`)
		}
		waittest.Succeeds(t, "the finding of a paused queue to come or go", func() error {
			var page struct{ Findings []struct{ ID string } }
			if err := r.get("/v1/findings", "", &page); err != nil || len(page.Findings) > 0 == c.any {
				return err
			}
			return fmt.Errorf("there are %d", len(page.Findings))
		})
		seen := p.pushed("overview", p.pushed("overview", p.seq("overview")))
		if shown := strings.Contains(p.text(), "All is well"); shown == c.any {
			t.Errorf("after push %d, the second since %s, the page says\n%s\nwant a finding: %t", seen, c.call, p.text(), c.any)
		}
	}
	p.clean(r.addr)
}

// TestTenTabs: browsers open six connections to a server at most, and a page needs none of them to
// stay live.
func TestTenTabs(t *testing.T) {
	t.Parallel()
	r := newFleet(t).replica("r1", "")
	first := newBrowser(t).tab(wide)
	tabs := []*tab{first}
	for len(tabs) < 10 {
		tabs = append(tabs, first.beside())
	}
	for _, p := range tabs {
		p.open(r.console())
		p.pushed("overview", 0)
	}
	for _, p := range tabs {
		p.pushed("overview", p.seq("overview"))
		if got := p.link(); got != "live" {
			t.Errorf("a tab is %s; want live", got)
		}
	}
}

// link returns what the page says about its connection.
func (p *tab) link() string {
	p.t.Helper()
	return eval[string](p, `document.querySelector("header .link").textContent`)
}

// balancer sends requests to the first of its replicas that answers, below a path of its own.
type balancer struct {
	prefix   string
	server   *httptest.Server
	replicas atomic.Pointer[[]*replica]
}

func newBalancer(t *testing.T, prefix string, replicas ...*replica) *balancer {
	t.Helper()
	b := &balancer{prefix: prefix}
	b.replicas.Store(&replicas)
	b.server = httptest.NewServer(b.handler())
	t.Cleanup(b.server.Close)
	return b
}

// newSecureBalancer ends TLS, as a proxy before replicas does that are not started yet.
func newSecureBalancer(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{}
	b.replicas.Store(&[]*replica{})
	b.server = httptest.NewUnstartedServer(b.handler())
	b.server.Config.ErrorLog = log.New(io.Discard, "", 0) // the browser tries without its exception first
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	return b
}

func (b *balancer) handler() http.Handler {
	return http.StripPrefix(b.prefix, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			target := &url.URL{Scheme: "http", Host: b.pick()}
			r.SetURL(target)
			if r.In.TLS != nil {
				r.SetXForwarded()
			}
			r.Out.Host = r.In.Host // the replica compares it with the origin of the page
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
}

func (b *balancer) pick() string {
	for _, r := range *b.replicas.Load() {
		select {
		case <-r.ended:
		default:
			return r.addr
		}
	}
	return "127.0.0.1:1" // nothing listens there
}

func (b *balancer) console() string { return b.server.URL + b.prefix + "/console/" }

// TestForeignOrigins: a page from elsewhere can neither send forms to a replica, nor open its live
// updates, nor frame its page.
func TestForeignOrigins(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	ids := f.busy(r, "")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<iframe src=%q></iframe><iframe name=sink></iframe>
			<form target=sink method=post action="http://%s/v1/jobs/%s/cancel"><button>Win</button></form>`, r.console(), r.addr, ids["waiting"])
	}))
	t.Cleanup(elsewhere.Close)
	p := newBrowser(t).tab(wide)
	p.open(strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1))
	p.click("button", "Win")
	if got := eval[string](p, fmt.Sprintf(`new Promise((done) => { const s = new WebSocket("ws://%s/console/live", "freeslot.console.v1");
		s.onmessage = () => done("a message"); s.onclose = () => done("closed"); })`, r.addr)); got != "closed" {
		t.Errorf("a page from elsewhere gets %s from /console/live; want none", got)
	}
	if got := eval[string](p, fmt.Sprintf(`fetch("http://%s/v1/jobs/%s/cancel", {method: "POST", headers: {"Freeslot-Console": "1"}})
		.then(() => "an answer", () => "nothing")`, r.addr, ids["waiting"])); got != "nothing" {
		t.Errorf("a page from elsewhere gets %s; want nothing", got)
	}
	waittest.Until(t, "a refused frame", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(strings.Join(p.said, "\n"), "frame-ancestors")
	})
	var job struct{ State string }
	if err := r.get("/v1/jobs/"+ids["waiting"], "", &job); err != nil || job.State != "waiting" {
		t.Errorf("the job is %s after attacks (%v); want it to wait on", job.State, err)
	}
}
