package api

import (
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/freeslot/freeslot"
)

// guard refuses requests that a browser sends for a foreign page.
type guard struct {
	// loopbackOnly is true if no caller needs a token. A page that made its own name point to
	// 127.0.0.1 could then call; its requests still have that name as Host.
	loopbackOnly bool
	origins      []string
}

// wrap refuses bad requests, and answers the preflight requests of the allowed origins.
func (g *guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.check(r); err != nil {
			writeError(w, body(err))
			return
		}
		if origin := r.Header.Get("Origin"); slices.Contains(g.origins, origin) {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", "Retry-After, "+AuditHeader)
			h.Add("Vary", "Origin")
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Freeslot-Reason, Idempotency-Key, Traceparent")
				h.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (g *guard) check(r *http.Request) *freeslot.Error {
	if g.loopbackOnly && !loopback((&url.URL{Host: r.Host}).Hostname()) {
		return &freeslot.Error{
			Code: freeslot.CodePermissionDenied,
			Message: "without tokens only requests to this machine by a name of its own " +
				"(localhost, 127.0.0.1, [::1]) are served",
		}
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 || len(origins) == 1 && (slices.Contains(g.origins, origins[0]) || sameHost(origins[0], r.Host)) {
		return nil
	}
	return &freeslot.Error{
		Code:    freeslot.CodePermissionDenied,
		Message: "pages of this origin may not call the scheduler; allowed_origins in its configuration lists those that may",
	}
}

// sameHost ignores the scheme: behind a proxy that ends TLS the page has https, and this server
// not.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && u.Host == host
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
