package console

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/loopback"
)

const (
	// secureCookie is the name over HTTPS, where browsers take it from the server itself alone.
	// plainCookie is the name on the loopback.
	secureCookie = "__Host-freeslot"
	plainCookie  = "freeslot"

	// maxSession is how long a session lasts, and maxIdle how long it may be unused. It is renewed
	// when renewAfter of that is over, and not with each request.
	maxSession = 8 * time.Hour
	maxIdle    = time.Hour
	renewAfter = 5 * time.Minute
	// maxCookie is the size of the largest value that browsers keep, with room for the attributes.
	maxCookie = 3800
)

// session is what a cookie says.
type session struct {
	ID     string          `json:"i"`
	Ticket identity.Ticket `json:"t"`
	// EndMS is when the session ends, and IdleMS when it ends unless it is used, in milliseconds
	// since 1970.
	EndMS  int64 `json:"e"`
	IdleMS int64 `json:"u"`
}

// newSession begins a session of a caller.
func newSession(who *identity.Principal, now time.Time) *session {
	id := make([]byte, 16)
	rand.Read(id)
	s := &session{ID: base64.RawURLEncoding.EncodeToString(id), Ticket: identity.TicketOf(who)}
	end := now.Add(maxSession)
	if !who.Expires.IsZero() && who.Expires.Before(end) {
		end = who.Expires
	}
	s.EndMS = end.UnixMilli()
	s.use(now)
	return s
}

// use makes the session idle from now on.
func (s *session) use(now time.Time) { s.IdleMS = min(s.EndMS, now.Add(maxIdle).UnixMilli()) }

// over reports whether the session has ended.
func (s *session) over(now time.Time) bool {
	ms := now.UnixMilli()
	return ms >= s.EndMS || ms >= s.IdleMS
}

// stale reports whether a use of the session must be noted in its cookie.
func (s *session) stale(now time.Time) bool {
	return s.IdleMS < s.EndMS && s.IdleMS < now.Add(maxIdle-renewAfter).UnixMilli()
}

// decodeSession reads what open has opened.
func decodeSession(plain []byte) (*session, error) {
	var s session
	if err := json.Unmarshal(plain, &s); err != nil || s.ID == "" {
		return nil, errSeal
	}
	return &s, nil
}

// cookieName returns the name of the cookie for this request; empty if sessions are not possible.
// Over plain HTTP they are for this machine alone: others could read the cookie on the way.
func cookieName(r *http.Request) string {
	switch {
	case listener.ByHTTPS(r):
		return secureCookie
	case fromHere(r):
		return plainCookie
	default:
		return ""
	}
}

// fromHere reports whether a browser on this machine sent the request by a name of this machine,
// and not through a proxy.
func fromHere(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && at.Addr().Unmap().IsLoopback() && loopback.Is((&url.URL{Host: r.Host}).Hostname())
}

// setCookie gives the browser the session, or takes it away if that is nil.
func (c *Console) setCookie(w http.ResponseWriter, name string, s *session, now time.Time) *freeslot.Error {
	cookie := http.Cookie{
		Name: name, Path: "/", HttpOnly: true, Secure: name == secureCookie, SameSite: http.SameSiteStrictMode, MaxAge: -1,
	}
	if s != nil {
		plain, err := json.Marshal(s)
		if err != nil {
			panic(err) // texts and numbers
		}
		cookie.Value = c.sealer.seal(plain)
		cookie.MaxAge = max(1, int(time.UnixMilli(s.IdleMS).Sub(now)/time.Second))
		if len(cookie.Value) > maxCookie {
			return &freeslot.Error{
				Code: freeslot.CodeInvalidArgument, Field: "token", Message: "the token's scopes are too long for a cookie",
			}
		}
	}
	http.SetCookie(w, &cookie)
	return nil
}

// sessionOf returns the session of the request's cookie and its caller; nil if there is none that
// holds.
func (c *Console) sessionOf(r *http.Request) (*session, *identity.Principal) {
	name := cookieName(r)
	if name == "" || c.auth.Open() || r.Header.Get("Authorization") != "" {
		return nil, nil
	}
	cookie, err := r.Cookie(name)
	if err != nil || len(cookie.Value) > maxCookie {
		return nil, nil
	}
	plain, err := c.sealer.open(r.Context(), cookie.Value)
	if err != nil {
		return nil, nil
	}
	s, err := decodeSession(plain)
	if err != nil || s.over(time.Now()) {
		return nil, nil
	}
	who, err := c.auth.Redeem(&s.Ticket)
	if err != nil {
		return nil, nil
	}
	return s, &who
}

// ConsoleHeader must be in each request of the page that may change something. Pages of others
// cannot add it.
const ConsoleHeader = "Freeslot-Console"

// idleHeader is in requests of a page whose user does nothing. They do not renew the session.
const idleHeader = "Freeslot-Idle"

// fromPage refuses requests that may change something unless the page itself has sent them.
func (c *Console) fromPage(r *http.Request) *freeslot.Error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return ownPage(r)
	}
	if err := c.crossOrigin.Check(r); err != nil {
		return &freeslot.Error{Code: freeslot.CodePermissionDenied, Message: "only the console's own page may send this"}
	}
	if r.Header.Get(ConsoleHeader) != "1" {
		return &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: ConsoleHeader,
			Message: "a request with a session's cookie needs the header " + ConsoleHeader + ": 1",
		}
	}
	return nil
}

type sessionKey struct{}

// Recognize makes the caller of the cookie's session the caller of the request, and renews the
// session if a user has caused it. A request without one stays as it is. The error is for the
// answer.
func (c *Console) Recognize(w http.ResponseWriter, r *http.Request) (*http.Request, *freeslot.Error) {
	s, who := c.sessionOf(r)
	if s == nil {
		return r, nil
	}
	if err := c.fromPage(r); err != nil {
		return r, err
	}
	if now := time.Now(); s.stale(now) && r.Header.Get(idleHeader) == "" {
		s.use(now)
		if err := c.setCookie(w, cookieName(r), s, now); err != nil {
			return r, err
		}
	}
	ctx := context.WithValue(identity.As(r.Context(), who), sessionKey{}, s)
	return r.WithContext(ctx), nil
}

// recognized returns the session of a request that Recognize returned; nil if it has none.
func recognized(r *http.Request) *session {
	s, _ := r.Context().Value(sessionKey{}).(*session)
	return s
}

// addressOf returns the address that the request came from.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
