package conformance

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestHandshakeGivenUp: no step takes a handshake that the driver has given up.
func TestHandshakeGivenUp(t *testing.T) {
	t.Parallel()
	p := &player{t: t, servers: newServers(t, "node", 1)}
	url := strings.Replace(p.servers.addresses[0], "ws:", "http:", 1) + frame.Path
	dial := func(ctx context.Context) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if response, err := http.DefaultTransport.RoundTrip(request); err == nil {
			_ = response.Body.Close()
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	go dial(ctx)
	first := waittest.Receive(t, "the first handshake", p.servers.handshakes)
	giveUp()
	waittest.Receive(t, "the end of the first handshake", first.r.Context().Done())
	p.servers.handshakes <- first
	go dial(t.Context())
	if p.handshake("the second handshake") == first {
		t.Error("a step got the handshake that was given up, expected the next one")
	}
}
