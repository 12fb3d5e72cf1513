package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/tlsfile"
)

// Config describes a node and its gateways. Its fields are named after the worker's configuration
// in errors.
type Config struct {
	// Gateway holds wss://host[:port] of replicas, several with commas between.
	Gateway string
	// Token proves who the node is. TokenFile names a file that holds it instead, which is read
	// again at each connect.
	Token, TokenFile string
	TLS              TLS
	// Insecure silences the warning about a ws:// address of another machine.
	Insecure bool
	// Node is the id of the node, Epoch its incarnation.
	Node  string
	Epoch cell.Epoch
	// Beat requests a heartbeat. It must not block.
	Beat func()
	// HeartbeatInterval is the node's. Start warns if it is long for the gateway.
	HeartbeatInterval time.Duration
	// CallTimeout bounds a report, and SpecTimeout a request for a job. Other calls are bounded by
	// their callers.
	CallTimeout, SpecTimeout time.Duration
	// Dial replaces the network, and the proxy that the environment names, in tests. It may be nil.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// TLS tells how gateways prove who they are, and how the node does if they ask.
type TLS = tlsfile.Files

// Validate returns an error for each mistake that can be known without reading files. Files are
// read at each connect.
func (c *Config) Validate() (bad []error) {
	refuse := func(field, format string, args ...any) { bad = append(bad, freeslot.Invalid(field, format, args...)) }
	addrs, err := parseAddresses(c.Gateway)
	if err != nil {
		bad = append(bad, err)
	}
	switch {
	case c.Token == "" && c.TokenFile == "":
		refuse("token_file", "is empty, expected the file with the node's token")
	case c.Token != "" && c.TokenFile != "":
		refuse("token_file", "is set beside token, expected one of them")
	case c.Token != "":
		if err := checkToken("token", c.Token); err != nil {
			bad = append(bad, err)
		}
	}
	if c.TLS == (TLS{}) {
		return bad
	}
	if slices.ContainsFunc(addrs, func(u *url.URL) bool { return u.Scheme != "wss" }) {
		refuse("gateway_tls", "is set, and gateway has an address that does not begin with wss://, expected none")
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		refuse("gateway_tls.cert_file", "and gateway_tls.key_file go together, expected both or none")
	}
	return bad
}

// parseAddresses parses Config.Gateway.
func parseAddresses(gateway string) (addrs []*url.URL, err error) {
	for one := range strings.SplitSeq(gateway, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "":
			return nil, freeslot.Invalid(
				"gateway", "has an entry that is no address, expected wss://host[:port], several with commas between",
			)
		case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			return nil, freeslot.Invalid("gateway", "has more than a host and a port, expected wss://%s", u.Host)
		}
		addrs = append(addrs, &url.URL{Scheme: u.Scheme, Host: u.Host})
	}
	return addrs, nil
}

// token reads the token.
func (c *Config) token() (string, error) {
	if c.Token != "" {
		return c.Token, nil
	}
	data, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", freeslot.Invalid("token_file", "cannot be read: %v", err)
	}
	token := strings.TrimSpace(strings.TrimPrefix(string(data), "\ufeff"))
	return token, checkToken("token_file", token)
}

func checkToken(field, token string) error {
	other := func(r rune) bool { return r <= ' ' || r > '~' }
	if token == "" || strings.ContainsFunc(token, other) {
		return freeslot.Invalid(field, "has no token, expected one line of letters, digits and punctuation")
	}
	return nil
}

// newTransport reads the certificates that may sign the gateways'. The node's own certificate
// is read at each connect.
func newTransport(c *Config) (*http.Transport, error) {
	t, proxy, dial := c.TLS, http.ProxyFromEnvironment, new(net.Dialer).DialContext
	if c.Dial != nil {
		proxy, dial = nil, c.Dial
	}
	conf, err := t.Config("gateway_tls")
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy: proxy, DialContext: dial, TLSClientConfig: conf,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // see Store.transport
		MaxIdleConnsPerHost: bulkAtOnce, IdleConnTimeout: time.Minute,
	}, nil
}
