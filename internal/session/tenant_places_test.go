package session

import (
	"net/http"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// A tenant that takes all sessions it may have leaves the others their places, and gets a place
// again when one of its sessions has ended.
func TestSessionsOfATenant(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{MaxSessions: 4, MaxTenantSessions: 2}, newFakeDispatcher())
	open := func(tenant string) (*peer, int) {
		t.Helper()
		conn, resp, err := s.dial(dialing{token: tenant})
		if err != nil {
			return nil, resp.StatusCode
		}
		return conn, 0
	}
	first, _ := open("acme")
	for i, tt := range []struct {
		tenant string
		status int
	}{{"acme", 0}, {"acme", http.StatusServiceUnavailable}, {"other", 0}, {"acme", http.StatusServiceUnavailable}, {"other", 0}} {
		if _, status := open(tt.tenant); status != tt.status {
			t.Errorf("session %d, of %s, gets %d, expected %d", i, tt.tenant, status, tt.status)
		}
	}
	_ = first.conn.CloseNow()
	waittest.Until(t, "a place for acme", func() bool { _, status := open("acme"); return status == 0 })
}
