// Package loopback tells addresses that only this machine reaches from others.
package loopback

import (
	"net/netip"
	"net/url"
	"strings"
)

// Is reports whether only this machine reaches the host, a name or an IP address.
func Is(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost") ||
		strings.HasSuffix(strings.ToLower(host), ".localhost")
}

// Plain returns the URLs, separated by commas, to which a token would go over the network
// in the clear, with commas between; "" if there is none. Of each it returns scheme and host only.
func Plain(urls string) string {
	var plain []string
	for one := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err == nil && (u.Scheme == "ws" || u.Scheme == "http") && !Is(u.Hostname()) {
			plain = append(plain, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(plain, ",")
}
