package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/wire"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, sources)
}

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}

func TestKeyNames(t *testing.T) {
	t.Parallel()
	scripttest.CheckKeys(t, keysOf)
}

const home = "http://127.0.0.1:7480"

// send sends a request of a page at base, with a cookie unless that is empty. header has pairs.
func send(
	h http.Handler, method, target, body string, cookie *http.Cookie, header ...string,
) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, target, strings.NewReader(body)), httptest.NewRecorder()
	r.RemoteAddr = "127.0.0.1:50000"
	if strings.HasPrefix(target, "https:") {
		r.RemoteAddr = "192.0.2.7:50000"
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set(ConsoleHeader, "1")
	if cookie != nil {
		r.AddCookie(cookie)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		if header[i] == "From" {
			r.RemoteAddr = header[i+1]
		}
	}
	h.ServeHTTP(w, r)
	return w
}

func signIn(t *testing.T, c *Console, base, token string) *http.Cookie {
	t.Helper()
	w := send(c, "POST", base+"/console/sign-in", `{"token":"`+token+`"}`, nil)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusNoContent || len(cookies) != 1 {
		t.Fatalf("signing in as %s is answered %d %s with %d cookies; want 204 with one", token, w.Code, w.Body, len(cookies))
	}
	return cookies[0]
}

// roleOf returns the role that a cookie gives; empty if none.
func roleOf(c *Console, base string, cookie *http.Cookie) identity.Role {
	var answer sessionAnswer
	_ = json.Unmarshal(send(c, "GET", base+"/console/session", "", cookie).Body.Bytes(), &answer)
	return answer.Role
}

// TestCookie: its attributes, over HTTPS and on this machine; it gives its token's role, and holds
// no token.
func TestCookie(t *testing.T) {
	t.Parallel()
	c := newTest(t, everyone())
	for base, want := range map[string]string{
		"https://fleet.example.com": "__Host-freeslot=; Path=/; Max-Age=3600; HttpOnly; Secure; SameSite=Strict",
		home:                        "freeslot=; Path=/; Max-Age=3600; HttpOnly; SameSite=Strict",
	} {
		for _, role := range identity.Roles {
			cookie := signIn(t, c, base, string(role))
			if got := roleOf(c, base, cookie); got != role {
				t.Errorf("the cookie of %s at %s gives the role %q; want its own", role, base, got)
			}
			value := cookie.Value
			if cookie.Value = ""; strings.Replace(cookie.String(), "Max-Age=3599", "Max-Age=3600", 1) != want {
				t.Errorf("the cookie at %s is %s; want %s", base, cookie, want)
			}
			if strings.Contains(value, string(role)) || len(value) > 400 {
				t.Errorf("the value %s has %d bytes; want at most 400 without the token", value, len(value))
			}
		}
	}
	secure, plain := signIn(t, c, "https://fleet.example.com", "viewer"), signIn(t, c, home, "viewer")
	if a, b := roleOf(c, home, secure), roleOf(c, "https://fleet.example.com", plain); a != "" || b != "" {
		t.Errorf("the cookie of the other way gives %q and %q; want nothing", a, b)
	}
}

// TestSignInRefused: where the token would cross a network in the clear, where another page asks,
// and with what is no token.
func TestSignInRefused(t *testing.T) {
	t.Parallel()
	c := newTest(t, everyone())
	const good = `{"token":"viewer"}`
	for name, of := range map[string]struct {
		base, body string
		header     []string
		want       int
	}{
		"from another machine": {home, good, []string{"From", "192.0.2.7:1"}, http.StatusForbidden},
		"by another name":      {"http://fleet.example.com", good, nil, http.StatusForbidden},
		"through a proxy":      {home, good, []string{"X-Forwarded-For", "192.0.2.7"}, http.StatusForbidden},
		"a proxy that is not trusted": {
			"http://fleet.example.com", good, []string{"X-Forwarded-Proto", "https"}, http.StatusForbidden,
		},
		"a foreign page":                {home, good, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"another page of the same site": {home, good, []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		"an old browser's foreign page": {
			home, good, []string{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}, http.StatusForbidden,
		},
		"a form":                {home, good, []string{ConsoleHeader, ""}, http.StatusForbidden},
		"an unknown token":      {home, `{"token":"nobody"}`, nil, http.StatusUnauthorized},
		"no token":              {home, `{}`, nil, http.StatusBadRequest},
		"no JSON":               {home, `token=viewer`, nil, http.StatusBadRequest},
		"a body without an end": {home, `{"token":"` + strings.Repeat("x", maxSignIn) + `"}`, nil, http.StatusBadRequest},
	} {
		w := send(c, "POST", of.base+"/console/sign-in", of.body, nil, of.header...)
		if w.Code != of.want || len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: %d %s with %d cookies; want %d without one", name, w.Code, w.Body, len(w.Result().Cookies()), of.want)
		}
	}
	open := newTest(t, identity.NewAuthenticator(nil, "default", false))
	if w := send(open, "POST", home+"/console/sign-in", good, nil); w.Code != http.StatusBadRequest {
		t.Errorf("without tokens signing in is answered %d; want 400", w.Code)
	}
}

// TestRecognize: what the cookie opens, and to whose requests.
func TestRecognize(t *testing.T) {
	t.Parallel()
	c := newTest(t, everyone())
	cookie := signIn(t, c, home, "operator")
	for name, of := range map[string]struct {
		method  string
		header  []string
		refused bool
		role    identity.Role
	}{
		"a read":                     {"GET", nil, false, identity.Operator},
		"a read without the header":  {"GET", []string{ConsoleHeader, ""}, false, identity.Operator},
		"a change":                   {"POST", nil, false, identity.Operator},
		"a change without a header":  {"POST", []string{ConsoleHeader, ""}, true, ""},
		"a foreign page's change":    {"POST", []string{"Sec-Fetch-Site", "cross-site"}, true, ""},
		"a same-site page's change":  {"DELETE", []string{"Sec-Fetch-Site", "same-site"}, true, ""},
		"a same-site page's read":    {"GET", []string{"Origin", "https://app.example.com"}, true, ""},
		"a token wins":               {"GET", []string{"Authorization", "Bearer viewer"}, false, ""},
		"plain HTTP from elsewhere":  {"GET", []string{"From", "192.0.2.7:1"}, false, ""},
		"plain HTTP by another name": {"GET", []string{"Host", "fleet.example.com"}, false, ""},
	} {
		var role identity.Role
		refused := false
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r, err := c.Recognize(w, r)
			if refused = err != nil; refused {
				return
			}
			if recognized(r) != nil {
				who, err := c.auth.Authenticate(r)
				if err != nil {
					t.Error(err)
				}
				role = who.Role
			}
		})
		send(h, of.method, home+"/v1/nodes", "", cookie, of.header...)
		if role != of.role || refused != of.refused {
			t.Errorf("%s: role %q, refused %v; want %q, %v", name, role, refused, of.role, of.refused)
		}
	}
	cookie.Value = cookie.Value[:len(cookie.Value)-4] + "AAAA"
	if got := roleOf(c, home, cookie); got != "" {
		t.Errorf("a changed cookie gives %q; want nothing", got)
	}
}

// TestSessionEnds: after an hour without use, after eight hours in any case, with its token, and by
// signing out, which ends its connections to the replica.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/tokens.yaml"
	auth := func(t *testing.T) *identity.Authenticator {
		ends := time.Now().Add(90 * time.Minute).UTC().Format(time.RFC3339)
		writeText(t, file, tokenLine("stays", "")+tokenLine("goes", "")+tokenLine("ends", ", expires: "+ends))
		return fileTokens(t, file)
	}
	inBubble(t, auth, roomy, func(s *site) {
		t, c := s.t, s.Console
		// use is a request of the page, which takes the cookie that comes with the answer.
		use := func(cookie *http.Cookie, header ...string) (*http.Cookie, bool) {
			w := send(c, "GET", home+"/console/session", "", cookie, header...)
			for _, renewed := range w.Result().Cookies() {
				return renewed, true
			}
			return cookie, strings.Contains(w.Body.String(), `"signed_in":true`)
		}
		idle, used, short, gone := signIn(
			t, c, home, "stays",
		), signIn(t, c, home, "stays"), signIn(t, c, home, "ends"), signIn(t, c, home, "goes")
		if same, ok := use(used); !ok || same != used {
			t.Error("a new cookie is renewed at once, or unknown; want it to stay")
		}
		left := signIn(t, c, home, "stays")
		began, ok := time.Now(), true
		for ok {
			time.Sleep(10 * time.Minute)
			used, ok = use(used)
			left, _ = use(left, idleHeader, "1")
			switch since := time.Since(began); since {
			case 50 * time.Minute:
				if same, ok := use(gone); !ok || same == gone {
					t.Error("after 50 minutes an unused session is over; want it to be renewed")
				}
			case time.Hour:
				if _, ok := use(idle); ok {
					t.Error("after an hour without use a session holds; want its end")
				}
				if _, ok := use(left); ok {
					t.Error("a page that asks while its user does nothing keeps the session; want its end")
				}
				short, ok = use(signIn(t, c, home, "ends"))
				if !ok {
					t.Error("the token that ends later is unknown; want it to hold")
				}
			case 90 * time.Minute:
				if _, ok := use(short); ok {
					t.Error("a session outlives its token; want its end")
				}
			}
		}
		if lasted := time.Since(began); lasted != maxSession {
			t.Errorf("a session in use lasts %s; want %s", lasted, maxSession)
		}

		gone = signIn(t, c, home, "goes")
		live := func(cookie *http.Cookie) *viewed {
			t.Helper()
			// The network in memory has no addresses, so the cookie comes by its session.
			plain, err := c.sealer.open(context.Background(), cookie.Value)
			if err != nil {
				t.Fatal(err)
			}
			opened, err := decodeSession(plain)
			if err != nil {
				t.Fatal(err)
			}
			s.signedIn.Store(opened)
			defer s.signedIn.Store(nil)
			return s.mustOpen("none")
		}
		first, second := signIn(t, c, home, "stays"), signIn(t, c, home, "stays")
		one, other, theirs := live(first), live(second), live(gone)
		writeText(t, file, tokenLine("stays", ""))
		removed := time.Now()
		if got := theirs.ended(); got != wire.CloseRights || time.Since(removed) > 2*time.Second {
			t.Errorf(
				"the connection of a removed token ends with %d after %s; want %d within 2s", got, time.Since(removed),
				wire.CloseRights,
			)
		}
		if _, ok := use(gone); ok {
			t.Error("the session of a removed token holds; want its end")
		}
		w := send(c, "POST", home+"/console/sign-out", "", first)
		if set := w.Header().Get("Set-Cookie"); w.Code != http.StatusNoContent || !strings.HasPrefix(set, "freeslot=;") ||
			!strings.Contains(set, "Max-Age=0") {
			t.Errorf("signing out is answered %d with the cookie %q; want 204 that takes the cookie away", w.Code, set)
		}
		if got := one.ended(); got != wire.CloseRights {
			t.Errorf("the connection of the session ends with %d; want %d", got, wire.CloseRights)
		}
		synctest.Wait()
		if n := s.viewers.Len(); n != 1 {
			t.Errorf("%d connections are left; want the one of the other session", n)
		}
		began = time.Now()
		if got := other.ended(); got != wire.CloseRights || time.Since(began) > maxIdle {
			t.Errorf(
				"the connection of an unused session ends with %d after %s; want %d within %s", got, time.Since(began),
				wire.CloseRights, maxIdle,
			)
		}
	})
}

// TestSharedKeys: replicas open what others have sealed, also with a key that is newer than their
// last read; a session outlives the day of its key; and while Redis is away all goes on.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	rig := scripttest.NewRig(t, redistest.Shared(t))
	var away atomic.Bool
	replica := func(life time.Duration) *sealer {
		st := newStore(rig.Runner)
		s := newSealer(func(ctx context.Context, fresh []byte, _ time.Duration) ([][]byte, error) {
			if away.Load() {
				return nil, errors.New("away")
			}
			return st.seals(ctx, fresh, life)
		}, zap.NewNop())
		return s
	}
	opens := func(s *sealer, text string) bool {
		plain, err := s.open(t.Context(), text)
		return err == nil && string(plain) == "session"
	}
	away.Store(true)
	a := replica(time.Hour)
	a.refresh(t.Context(), 0)
	alone := a.seal([]byte("session"))
	if !opens(a, alone) {
		t.Error("a replica does not know what it sealed alone; want it to")
	}
	away.Store(false)
	b := replica(0) // for it, each key is old
	a.refresh(t.Context(), 0)
	first := a.seal([]byte("session"))
	if !opens(b, first) || !opens(a, alone) || opens(b, alone) {
		t.Errorf("the first shared text opens elsewhere: %v, the text from before here: %v, and elsewhere: %v; want true, "+
			"true, false",
			opens(b, first), opens(a, alone), opens(b, alone))
	}
	third := replica(time.Hour)
	if !opens(third, first) {
		t.Error("after a rotation the former key does not open; want it to")
	}
	away.Store(true)
	third.refresh(t.Context(), 0)
	if !opens(third, first) {
		t.Error("in an outage what is known is forgotten; want it to stay")
	}
	away.Store(false)
	b.refresh(t.Context(), 0) // makes a third key, so that the first one goes
	if opens(replica(time.Hour), first) {
		t.Error("a text of a key from two rotations ago opens; want it refused")
	}
	newest := b.seal([]byte("session"))
	third.at = time.Time{} // a second has passed
	if !opens(third, newest) {
		t.Error("a key that is newer than the last read does not open; want it to be read")
	}
}

// FuzzCookie: whatever a cookie has, it is refused without a panic; and what was sealed and changed
// is refused.
func FuzzCookie(f *testing.F) {
	s := newSealer(ownKeys, zap.NewNop())
	who := identity.Principal{Tenant: "acme", Role: identity.Viewer}
	plain, err := json.Marshal(newSession(&who, time.Now()))
	if err != nil {
		f.Fatal(err)
	}
	good := s.seal(plain)
	for _, seed := range []string{"", "AAAA", "AAAAAA", good, good[:len(good)-1], good + "A", strings.ToLower(good)} {
		f.Add(seed, []byte(`{"i":"x"}`))
	}
	f.Add(good, []byte(`{"i":"x","t":{"d":"AA==","s":{"r":"admin","k":"AA==","e":1}},"e":9223372036854775807,"u":-1}`))
	auth := identity.NewAuthenticator([]identity.Credential{{Token: "t", Principal: who}}, "default", false)
	f.Fuzz(func(t *testing.T, text string, inside []byte) {
		s.at = time.Now() // no read of keys for each
		if got, err := s.open(t.Context(), text); err == nil && string(got) != string(plain) {
			t.Errorf("%q opens as %q; want nothing that was not sealed", text, got)
		}
		again, err := s.open(t.Context(), s.seal(inside))
		if err != nil || string(again) != string(inside) {
			t.Errorf("what was sealed opens as %q, %v; want %q", again, err, inside)
		}
		if decoded, err := decodeSession(inside); err == nil {
			decoded.over(time.Now())
			if who, err := auth.Redeem(&decoded.Ticket); err == nil {
				t.Errorf("an invented session is one of %+v; want none", who)
			}
		}
	})
}
