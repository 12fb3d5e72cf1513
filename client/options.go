package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/tlsfile"
)

// Defaults of Options.
const (
	DefaultDialTimeout     = 10 * time.Second
	DefaultMinBackoff      = 100 * time.Millisecond
	DefaultMaxBackoff      = 5 * time.Second
	DefaultPingInterval    = 20 * time.Second
	DefaultPingTimeout     = 10 * time.Second
	DefaultMaxMessageBytes = 64 << 20
)

const (
	socketPath = "/v1/ws"
	// writeTimeout bounds the writing of one frame.
	writeTimeout = 10 * time.Second
)

// Options configure a client. The zero value of each field means its default.
type Options struct {
	// Token is sent as bearer token; empty sends none.
	Token string
	// TokenSource returns the token of a connection, in place of Token. Each attempt to connect asks
	// it, so that a client whose token ends comes back with another one. It must be safe for
	// concurrent use, and bounds its own time; ctx ends with the client.
	TokenSource func(ctx context.Context) (string, error)
	// Name is put into the User-Agent, for the logs of proxies.
	Name string
	// Logger logs connects and disconnects; nil logs nothing.
	Logger *zap.Logger
	// TracerProvider makes a client span of each job, from submit to result, and the job carries
	// its context to the node. Nil makes none: jobs keep the TraceParent with which they came.
	TracerProvider trace.TracerProvider
	// TLS holds certificates for wss://. The zero value trusts the system's.
	TLS TLS
	// HTTPClient does the handshakes in place of one that is made of TLS. Nil without TLS means
	// http.DefaultClient.
	HTTPClient *http.Client

	// DialTimeout bounds one attempt to connect, including the welcome.
	DialTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pauses between attempts once every URL has failed. The
	// pause doubles from the first to the second, with jitter.
	MinBackoff, MaxBackoff time.Duration
	// PingInterval is how often the replica is pinged. PingTimeout is how long it may take to
	// answer before the connection counts as broken.
	PingInterval, PingTimeout time.Duration
	// MaxMessageBytes is the size of the largest frame that the client reads. It must be larger
	// than the largest result.
	MaxMessageBytes int
}

// TLS tells how replicas prove who they are, and how the client does if they ask.
type TLS struct {
	// CAFile holds the certificates (PEM) that may sign the replicas'; empty means the system's.
	// CertFile and KeyFile hold the client's own certificate, which is read at each connection.
	// ServerName is the name in the replicas' certificates; empty means the URL's host.
	CAFile, CertFile, KeyFile, ServerName string
}

// transport returns what connects to these replicas; nil without TLS. The error is an
// *freeslot.Error.
func (o *Options) transport(urls []*url.URL) (*http.Transport, error) {
	switch {
	case o.TLS == TLS{}:
		return nil, nil //nolint:nilnil // see above
	case o.HTTPClient != nil:
		return nil, freeslot.Invalid("tls", "is set beside http_client, expected one of them")
	}
	for _, u := range urls {
		if u.Scheme != "wss" && u.Scheme != "https" {
			return nil, freeslot.Invalid("tls", "is set, and a URL does not begin with wss://, expected ones that do")
		}
	}
	conf, err := tlsfile.Files(o.TLS).Config("tls")
	if err != nil {
		return nil, err
	}
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf}, nil
}

func (o Options) withDefaults() Options {
	o.DialTimeout = cmp.Or(o.DialTimeout, DefaultDialTimeout)
	o.MinBackoff = cmp.Or(o.MinBackoff, DefaultMinBackoff)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, DefaultMaxBackoff)
	o.PingInterval = cmp.Or(o.PingInterval, DefaultPingInterval)
	o.PingTimeout = cmp.Or(o.PingTimeout, DefaultPingTimeout)
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, DefaultMaxMessageBytes)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

func (o Options) userAgent() string {
	if o.Name == "" {
		return "freeslot-client"
	}
	return "freeslot-client (" + o.Name + ")"
}

// parseURLs reads Dial's list of replicas.
func parseURLs(list string) ([]*url.URL, error) {
	var urls []*url.URL
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if !strings.Contains(text, "://") { // otherwise host:port would be a scheme and a path, or malformed
			return nil, fmt.Errorf("URL %d of the list has no scheme, expected one such as ws://127.0.0.1:7480", len(urls)+1)
		}
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("URL %d of the list is malformed", len(urls)+1) // the text may hold a secret
		}
		switch u.Scheme {
		case "ws", "wss", "http", "https":
		default:
			return nil, fmt.Errorf("URL %d of the list has scheme %q, expected ws or wss", len(urls)+1, u.Scheme)
		}
		if u.Host == "" {
			return nil, fmt.Errorf("URL %d of the list has no host", len(urls)+1)
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = socketPath
		}
		query := u.Query()
		query.Set("frames", "batch")
		u.RawQuery = query.Encode()
		urls = append(urls, u)
	}
	if len(urls) == 0 {
		return nil, fmt.Errorf("no URL of a replica is given, expected one such as ws://127.0.0.1:7480")
	}
	return urls, nil
}
