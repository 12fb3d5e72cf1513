package session

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// refusedRetryAfter is the pause for clients that a full or stopping replica refuses: long enough
// to avoid a storm, short enough for a rolling restart.
const refusedRetryAfter = time.Second

// principal identifies a client.
type principal struct {
	tenant   string
	operator bool
}

// check makes the decisions about a request that do not depend on other sessions.
func (h *Handler) check(r *http.Request) (who principal, batch bool, _ *freeslot.Error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return who, false, &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: "Upgrade", Message: "this is a WebSocket endpoint, expected an upgrade to websocket"}
	}
	if origin := r.Header.Get("Origin"); origin != "" && !h.allows(origin, r.Host) {
		return who, false, &freeslot.Error{Code: freeslot.CodePermissionDenied, Field: "Origin", Message: fmt.Sprintf("pages of %.80q may not connect; see allowed_origins in the replica's configuration", origin)}
	}
	var err error
	if who.tenant, who.operator, err = h.auth.Authenticate(r); err != nil {
		return who, false, wire.AsError(err)
	}
	if !offersProtocol(r) {
		return who, false, &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: "Sec-WebSocket-Protocol", Message: "this endpoint speaks " + wire.Protocol + ", which the client did not offer"}
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
	offered := r.Header.Values("Sec-WebSocket-Protocol")
	names := strings.Split(strings.Join(offered, ","), ",")
	return len(offered) == 0 || slices.ContainsFunc(names, func(name string) bool {
		return strings.EqualFold(strings.TrimSpace(name), wire.Protocol)
	})
}

func stoppingError(consequence string) *freeslot.Error {
	return &freeslot.Error{Code: freeslot.CodeUnavailable, RetryAfter: refusedRetryAfter, Message: "the replica is stopping: " + consequence}
}

// refuse answers with the HTTP status that fits the error's code.
func (h *Handler) refuse(w http.ResponseWriter, err *freeslot.Error) {
	h.metrics.refused.WithLabelValues(string(err.Code)).Inc()
	header := w.Header()
	header.Set("Content-Type", "application/json")
	status := http.StatusInternalServerError
	switch err.Code {
	case freeslot.CodeInvalidArgument:
		status = http.StatusBadRequest
		if err.Field == "Upgrade" {
			status = http.StatusUpgradeRequired
			header.Set("Upgrade", "websocket")
			header.Set("Connection", "Upgrade")
		}
	case freeslot.CodeUnauthenticated:
		status = http.StatusUnauthorized
		header.Set("WWW-Authenticate", `Bearer realm="freeslot"`)
	case freeslot.CodePermissionDenied:
		status = http.StatusForbidden
	case freeslot.CodeOverloaded, freeslot.CodeRateLimited, freeslot.CodeUnavailable:
		status = http.StatusServiceUnavailable
	}
	if err.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int((err.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(wire.AppendErrorBody(nil, err), '\n')) // the client may be gone
}

// hijackWriter keeps the connection that the upgrade takes over. The WebSocket library can end it
// only after a close handshake of up to ten seconds.
type hijackWriter struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.conn = conn
	return conn, rw, err
}
