package listener

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// byName serves by next. Where a trusted proxy has sent a request, its RemoteAddr becomes the
// address that X-Forwarded-For names, with port 0.
func (s *strangers) byName(next http.Handler) http.Handler {
	if next == nil || len(s.limits.Proxies) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.limits.trusts(senderOf(r)) {
			if sender := s.forwarded(r.Header.Values("X-Forwarded-For")); sender.IsValid() {
				r.RemoteAddr = net.JoinHostPort(sender.String(), "0")
			}
		}
		next.ServeHTTP(w, r)
	})
}

// forwarded returns the last address that is not a trusted proxy's: a client can write all those
// before it.
func (s *strangers) forwarded(headers []string) (sender netip.Addr) {
	for _, name := range slices.Backward(strings.Split(strings.Join(headers, ","), ",")) {
		addr, err := netip.ParseAddr(strings.TrimSpace(name))
		if err != nil {
			return sender
		}
		if sender = addr.Unmap().WithZone(""); !s.limits.trusts(sender) {
			return sender
		}
	}
	return sender
}

func senderOf(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
