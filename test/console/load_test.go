package console

import (
	"net/http"
	"strings"
	"testing"
)

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// TestLoad: the page loads, runs its own script alone, and asks its replica alone.
func TestLoad(t *testing.T) {
	t.Parallel()
	r := newFleet(t).replica("r1", "")
	p := newBrowser(t).tab(wide)
	if status := p.open(r.console()); status != http.StatusOK {
		t.Fatalf("/console/ answers %d; want 200", status)
	}
	p.the("navigation", "Views")
	p.shows("Everybody on this machine is admin")
	p.clean(r.addr)

	for _, path := range []string{"/console/", "/console/session"} {
		answer, err := http.Get("http://" + r.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		h := answer.Header
		if got := h.Get("Content-Security-Policy"); got != policy {
			t.Errorf("the policy of %s is %q; want %q", path, got, policy)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s of %s is %q; want %q", name, path, got, want)
			}
		}
	}
	// A browser that asks for the replica's root is sent to the console.
	p.open("http://" + r.addr + "/")
	if at := eval[string](p, "location.href"); !strings.HasPrefix(at, r.console()) {
		t.Errorf("the root of the replica leads to %s; want %s", at, r.console())
	}
}

// TestFirstLoad: with an empty cache, little comes over the network before the overview has live
// figures. The connection for live updates is not counted.
func TestFirstLoad(t *testing.T) {
	t.Parallel()
	const mostBytes, mostRequests = 150_000, 6
	r := newFleet(t).replica("r1", "")
	p := newBrowser(t).tab(wide)
	p.open(r.console())
	p.pushed("overview", 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	requests := 0
	for _, request := range p.requests {
		if !strings.HasPrefix(request, "SOCKET ") {
			requests++
		}
	}
	t.Logf("%.0f bytes in %d requests", p.bytes, requests)
	if p.bytes > mostBytes || requests > mostRequests {
		t.Errorf("the first load takes %.0f bytes and %d requests; want at most %d and %d: %q",
			p.bytes, requests, mostBytes, mostRequests, p.requests)
	}
}
