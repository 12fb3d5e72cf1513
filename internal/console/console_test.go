package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

func TestMain(m *testing.M) {
	scripttest.Guard(scripts)
	acltest.Main(m, script.RoleReplica, Access) // which finds goroutines that are left
}

// everyone knows a caller for each role, with the role's name as the token.
func everyone() *identity.Authenticator {
	var all []identity.Credential
	for _, role := range identity.Roles {
		all = append(all, identity.Credential{Token: string(role), Principal: identity.Principal{Tenant: "acme", Role: role}})
	}
	return identity.NewAuthenticator(all, "default", false)
}

func newTest(t *testing.T, auth *identity.Authenticator, provider ...*OIDC) *Console {
	t.Helper()
	cfg := Config{Replica: "r1", Build: "v1", MaxViewers: 64, MaxTenantViewers: 64}
	for _, p := range provider {
		cfg.OIDC = p
	}
	c, err := New(cfg, Deps{Auth: auth, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	c.Start(Sources{Now: time.Now})
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func ask(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, target, nil), httptest.NewRecorder()
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

// TestFiles: the index names files that are there and stay for ever, and each is the same plain and
// packed. A browser that has one gets it again only after it has changed.
func TestFiles(t *testing.T) {
	t.Parallel()
	c := newTest(t, everyone())
	first := ask(c, "GET", "/console/")
	if got := first.Header().Get("Cache-Control"); first.Code != http.StatusOK || got != "no-cache" {
		t.Fatalf("the page is answered %d with %q; want 200 with no-cache", first.Code, got)
	}
	named := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(first.Body.String(), -1)
	if len(named) < 2 {
		t.Fatalf("the page names %q; want a script and a style sheet", named)
	}
	targets := map[string]string{"/console/": "no-cache"}
	for _, n := range named {
		targets["/console/"+n[1]] = "public, max-age=31536000, immutable"
	}
	for target, keep := range targets {
		plain, packed := ask(c, "GET", target), ask(c, "GET", target, "Accept-Encoding", "br, gzip;q=0.8")
		if got := packed.Header(); got.Get("Cache-Control") != keep || got.Get("Content-Encoding") != "gzip" ||
			got.Get("Vary") != "Accept-Encoding" || got.Get("ETag") == plain.Header().Get("ETag") {
			t.Errorf("%s has %v; want Cache-Control %s, gzip that varies, and a tag of its own", target, got, keep)
		}
		r, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v; want gzip", target, err)
		}
		if text, err := io.ReadAll(r); err != nil || !bytes.Equal(text, plain.Body.Bytes()) || len(text) == 0 {
			t.Errorf("%s unpacks to %d bytes, %v; want the %d plain ones", target, len(text), err, plain.Body.Len())
		}
		again := ask(c, "GET", target, "Accept-Encoding", "gzip", "If-None-Match", `"other", W/`+packed.Header().Get("ETag"))
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s with its tag is answered %d with %d bytes; want 304 without any", target, again.Code, again.Body.Len())
		}
		if head := ask(c, "HEAD", target); head.Code != http.StatusOK || head.Body.Len() > 0 {
			t.Errorf("HEAD %s is answered %d with %d bytes; want 200 without any", target, head.Code, head.Body.Len())
		}
	}
	for header, packed := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "deflate, gzip ; q=1": true, "gzip;q=0": false, "gzip; q=0.000": false,
		"x-gzip": false, "gzip;q=0.001": true,
	} {
		if got := ask(
			c, "GET", "/console/", "Accept-Encoding", header,
		).Header().Get("Content-Encoding") == "gzip"; got != packed {
			t.Errorf("Accept-Encoding %q packs %v; want %v", header, got, packed)
		}
	}
}

// TestHash: it changes with each file but the index, and an address of another release gets this
// release's file, which no cache keeps.
func TestHash(t *testing.T) {
	t.Parallel()
	load := func(change string) *page {
		folder := fstest.MapFS{
			"index.html": {Data: []byte("{{hash}}/a.js")}, "a.js": {Data: []byte("a")}, "b.css": {Data: []byte("b")},
		}
		if change != "" {
			folder[change] = &fstest.MapFile{Data: []byte("{{hash}} x")}
		}
		p, err := loadPage(folder)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	was := load("")
	for change, want := range map[string]bool{"": true, "index.html": true, "a.js": false, "b.css": false} {
		if got := load(change); (got.hash == was.hash) != want ||
			!strings.HasPrefix(string(got.files[index].plain), got.hash) {
			t.Errorf("with another %q the hash is %s in %q after %s; want it to stay: %v", change, got.hash,
				got.files[index].plain, was.hash, want)
		}
	}
	c := newTest(t, everyone())
	other := ask(c, "GET", "/console/0123456789ab/console.js")
	if got := other.Header().Get("Cache-Control"); other.Code != http.StatusOK || got != "no-cache" {
		t.Errorf("a script of another release is answered %d with %q; want 200 with no-cache", other.Code, got)
	}
	for _, folder := range []fs.FS{
		fstest.MapFS{"index.html": {Data: []byte("no place")}},
		fstest.MapFS{"a.js": {}},
		fstest.MapFS{"index.html": {Data: []byte("{{hash}}")}, "a.exe": {}},
	} {
		if p, err := loadPage(folder); err == nil {
			t.Errorf("files of %v are taken as %v; want an error", folder, p)
		}
	}
}

// TestAddresses: what is not there, in the form of the API's errors; and relative redirects, which
// hold behind any path of a proxy.
func TestAddresses(t *testing.T) {
	t.Parallel()
	c := newTest(t, everyone())
	to := ask(c, "GET", "/console")
	if got := to.Header().Get("Location"); to.Code != http.StatusSeeOther || got != "console/" {
		t.Errorf("/console is answered %d to %q; want 303 to console/", to.Code, got)
	}
	for _, target := range []string{
		"/console/nothing", "/console/index.html", "/console/" + c.page.hash + "/index.html",
		"/console/" + c.page.hash + "/other.js",
		"/console/short/console.js", "/console/" + c.page.hash + "/..%2fpage.go",
	} {
		got := ask(c, "GET", target)
		if want := `{"code":"not_found","message":"there is nothing at this path of the console"}`; got.Code != http.StatusNotFound ||
			strings.TrimSpace(got.Body.String()) != want {
			t.Errorf("%s is answered %d %s; want 404 %s", target, got.Code, got.Body, want)
		}
	}
}

// TestHeaders: browsers run only the page's own script, and show it in no frame.
func TestHeaders(t *testing.T) {
	t.Parallel()
	c := newTest(t, everyone())
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	}
	for _, target := range []string{
		"/console", "/console/", "/console/session", "/console/nothing", "/console/" + c.page.hash + "/console.js",
	} {
		got := map[string]string{}
		for name := range want {
			got[name] = ask(c, "GET", target).Header().Get(name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: headers differ; want -, came +\n%s", target, diff)
		}
	}
	if text := string(c.page.files[index].plain); strings.Contains(text, "style=") ||
		regexp.MustCompile(`<script[^>]*>[^<]`).MatchString(text) {
		t.Errorf("the index has a script or style of its own, which browsers refuse; want files:\n%s", text)
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		auth  *identity.Authenticator
		token string
		want  sessionAnswer
	}{
		"open": {
			identity.NewAuthenticator(nil, "default", false), "",
			sessionAnswer{Open: true, SignedIn: true, Tenant: "default", Role: "admin", Payloads: true},
		},
		"no token": {everyone(), "", sessionAnswer{}},
		"viewer":   {everyone(), "viewer", sessionAnswer{SignedIn: true, Tenant: "acme", Role: "viewer", Payloads: true}},
		"unknown":  {everyone(), "nobody", sessionAnswer{}},
	} {
		c.want.Replica, c.want.Build, c.want.IdleMS = "r1", "v1", 3_600_000
		answer := ask(newTest(t, c.auth), "GET", "/console/session", "Authorization", "Bearer "+c.token)
		var got sessionAnswer
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || got.NowMS == 0 {
			t.Errorf("%s: %s, %v; want a session with the time", name, answer.Body, err)
		}
		got.NowMS = 0
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: the session differs; want -, came +\n%s", name, diff)
		}
	}
}
