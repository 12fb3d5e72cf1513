package session

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// refusedRetryAfter is the pause for clients that a full or stopping replica refuses: long enough
// to avoid a storm, short enough for a rolling restart.
const refusedRetryAfter = time.Second

// check makes the decisions about a request that do not depend on other sessions.
func (h *Handler) check(r *http.Request) (who identity.Principal, batch bool, _ *freeslot.Error) {
	if !socket.IsUpgrade(r) {
		return who, false, &freeslot.Error{
			Code: freeslot.CodeInvalidArgument, Field: "Upgrade",
			Message: "this is a WebSocket endpoint, expected an upgrade to websocket",
		}
	}
	if origin := r.Header.Get("Origin"); origin != "" && !h.allows(origin, r.Host) {
		return who, false, &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: "Origin",
			Message: fmt.Sprintf("pages of %.80q may not connect; see allowed_origins in the replica's configuration", origin),
		}
	}
	var err error
	who, err = h.auth.Authenticate(r)
	listener.Tried(r, who.Tenant, err)
	if err != nil {
		h.sampled.Warn("session.unauthenticated", zap.String(logging.FieldAddress, r.RemoteAddr), zap.Error(err))
		return who, false, wire.AsError(err)
	}
	if !offersProtocol(r) {
		return who, false, &freeslot.Error{
			Code: freeslot.CodeInvalidArgument, Field: "Sec-WebSocket-Protocol",
			Message: "this endpoint speaks " + wire.Protocol + ", which the client did not offer",
		}
	}
	switch frames := r.URL.Query().Get("frames"); frames {
	case "", "single":
	case "batch":
		batch = true
	default:
		return who, false, freeslot.Invalid("frames", "is %.40q, expected single or batch", frames)
	}
	return who, batch, nil
}

// allows keeps other sites' pages from using the credentials of the browser's user. Clients that
// are not browsers send no origin.
func (h *Handler) allows(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && (strings.EqualFold(u.Host, host) || slices.Contains(h.cfg.AllowedOrigins, origin))
}

// offersProtocol reports whether a client would understand our messages. It returns false if the
// client names subprotocols without ours. A client that names none is assumed to speak ours.
func offersProtocol(r *http.Request) bool {
	return len(r.Header.Values("Sec-WebSocket-Protocol")) == 0 || socket.Offers(r, wire.Protocol)
}

// stopping is why sessions of a replica that stops end.
const stopping = "the replica is stopping"

func endingError(why, consequence string) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: refusedRetryAfter, Message: why + ": " + consequence,
	}
}

// refuse answers with the HTTP status that fits the error's code.
func (h *Handler) refuse(w http.ResponseWriter, err *freeslot.Error) {
	h.metrics.refused.WithLabelValues(string(err.Code)).Inc()
	socket.Refuse(w, wire.HandshakeStatus(err.Code), err)
}
