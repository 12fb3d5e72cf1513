package session

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/wire"
)

// ending is an authenticator whose one token ends.
type ending struct {
	// lasts is from the handshake on, which can take long on a busy machine; 0 is without end.
	lasts   time.Duration
	changed chan struct{}
	removed atomic.Bool
}

func (e *ending) Authenticate(*http.Request) (identity.Principal, error) {
	p := identity.Principal{Name: "ci", Tenant: "acme", Role: identity.Client}
	if e.lasts > 0 {
		p.Expires = time.Now().Add(e.lasts)
	}
	return p, nil
}

func (e *ending) Changed() <-chan struct{} { return e.changed }

func (e *ending) Holds(*identity.Principal) bool { return !e.removed.Load() }

// connectAs opens a session with this authenticator.
func connectAs(t *testing.T, auth Authenticator) *peer {
	t.Helper()
	s := serve(t, Config{}, newFakeDispatcher())
	s.auth = auth
	return s.connect("")
}

func TestRemovedTokenEndsSession(t *testing.T) {
	t.Parallel()
	auth := &ending{changed: make(chan struct{})}
	p := connectAs(t, auth)
	p.send(`{"type":"ping","id":"p1"}`)
	p.expect(`{"type":"pong","id":"p1"}`)
	auth.removed.Store(true)
	close(auth.changed)
	p.expectClose(wire.CloseRights)
}

// TestGoawayBeforeExpiry: a session whose token is about to expire is asked to go away, and takes
// no new jobs.
func TestGoawayBeforeExpiry(t *testing.T) {
	t.Parallel()
	p := connectAs(t, &ending{lasts: warning + 2*time.Second})
	p.expect(`{"type":"goaway","reason":"the token expires soon"}`)
	p.send(`{"type":"submit","id":"r1","job":{"service":"tts"}}`)
	p.expect(`{"type":"error","id":"r1","code":"unavailable","message":"the token expires soon: the job was not submitted","retry_after_ms":1000}`)
}

// TestExpiryEndsSession: a session that begins shortly before gets no warning.
func TestExpiryEndsSession(t *testing.T) {
	t.Parallel()
	connectAs(t, &ending{lasts: 100 * time.Millisecond}).expectClose(wire.CloseRights)
}
