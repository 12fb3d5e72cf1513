package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"strings"
)

// minTokenLength is the shortest token that is safe from guesses of other machines.
const minTokenLength = 16

// ListenTLS names files in PEM. They are read again when one of them has changed.
type ListenTLS struct {
	// The certificate, followed by its intermediate ones. It, its key and `client_ca_file` are
	// read again when one of them has changed. If they cannot be used then, the former ones stay in
	// use, and the log has `listener.tls_refused`.
	CertFile string `koanf:"cert_file"`
	// The key of `cert_file`.
	KeyFile string `koanf:"key_file"`
	// Certificates of the authorities that may sign the callers' certificates. With it a caller
	// needs a certificate in addition to its token.
	ClientCAFile string `koanf:"client_ca_file"`
}

func (t *ListenTLS) validate(at string, p *Problems) {
	if *t == (ListenTLS{}) {
		return
	}
	if t.CertFile == "" || t.KeyFile == "" {
		p.Addf(at+".cert_file", "and %s.key_file go together, expected both", at)
	} else {
		_, certErr := ReadFile(t.CertFile)
		p.Add(at+".cert_file", certErr)
		_, keyErr := ReadFile(t.KeyFile)
		p.Add(at+".key_file", keyErr)
		if certErr == nil && keyErr == nil {
			if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
				p.Addf(at+".cert_file", "is %q, no certificate of %s.key_file: %v", t.CertFile, at, err)
			}
		}
	}
	if t.ClientCAFile == "" {
		return
	}
	data, err := ReadFile(t.ClientCAFile)
	if err != nil {
		p.Add(at+".client_ca_file", err)
	} else if !x509.NewCertPool().AppendCertsFromPEM(data) {
		p.Addf(at+".client_ca_file", "is %q, which holds no certificate in PEM", t.ClientCAFile)
	}
}

func (r *Replica) validateMetricsListen(p *Problems) {
	if r.MetricsListen == "" {
		return
	}
	p.Listen("metrics_listen", r.MetricsListen, "127.0.0.1:7491")
	_, port, err := net.SplitHostPort(r.MetricsListen)
	for key, other := range map[string]string{"listen": r.Listen, "gateway.listen": r.Gateway.Listen} {
		if other == r.MetricsListen && err == nil && port != "0" {
			p.Addf("metrics_listen", "is %q like %s, expected another address, or none: /metrics is at listen then", other, key)
		}
	}
	if r.Auth.Metrics {
		p.Addf("auth.metrics", "is true beside metrics_listen, which has no TLS for tokens, expected one of them")
	}
}

func (r *Replica) validateListen(p *Problems) {
	r.TLS.validate("tls", p)
	r.validateMetricsListen(p)
	host, ok := p.Listen("listen", r.Listen, "127.0.0.1:7480 or :7480")
	if !ok || Loopback(host) {
		return
	}
	if len(r.Tokens) == 0 && r.TokensFile == "" && !r.Auth.OIDC.On() && !p.Has("tokens") {
		p.Addf(
			"listen",
			"is %q, reachable from other machines, which needs tokens: set tokens or tokens_file, or listen on 127.0.0.1",
			r.Listen,
		)
		return
	}
	if r.TLS.CertFile == "" && !r.BehindProxy && !p.Has("tls") {
		r.Insecure.Addf("listen", "is %q, reachable from other machines without TLS, so that tokens and results cross the "+
			"network in the clear: set tls, or behind_proxy: true where a proxy ends TLS, or listen on 127.0.0.1", r.Listen)
	}
	for i, t := range r.Tokens {
		if n := len(t.Token); n > 0 && n < minTokenLength {
			r.Insecure.Addf(element("tokens", i)+".token",
				"can be guessed from other machines, expected %d characters or more, as "+
					"`openssl rand -hex 32` prints", minTokenLength)
		}
	}
}

// Proxies returns the networks of TrustedProxies.
func (r *Replica) Proxies() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range r.TrustedProxies {
		if n, err := network(text); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// network parses an address or a network.
func network(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	n, err := netip.ParsePrefix(text)
	return n.Masked(), err
}

// Loopback reports whether host, an IP address or "localhost", is this machine only.
func Loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
