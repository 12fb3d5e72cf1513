package healthcheck

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// Defaults of a check.
const (
	DefaultInterval  = 5 * time.Second
	DefaultTimeout   = 2 * time.Second
	DefaultRise      = 2
	DefaultFall      = 3
	DefaultMinStatus = 200
	DefaultMaxStatus = 299
)

const (
	minInterval  = 100 * time.Millisecond
	maxInterval  = time.Hour
	minTimeout   = time.Millisecond
	maxThreshold = 100
	// maxBodyText bounds body_contains, which must fit into the part of a body that is searched.
	maxBodyText = 1 << 10
)

// Config is the check of one service: exactly one of Func, HTTP, TCP, GRPC and WebSocket is set.
type Config struct {
	// Func is a check written in Go. It returns nil if the service is well. It must return soon
	// after its context has ended.
	Func func(ctx context.Context) error `koanf:"-"`
	// Asks with `GET`.
	HTTP *HTTP `koanf:"http"`
	// Opens a connection and closes it.
	TCP *TCP `koanf:"tcp"`
	// Asks `grpc.health.v1.Health/Check`.
	GRPC *GRPC `koanf:"grpc"`
	// Makes a handshake.
	WebSocket *WebSocket `koanf:"websocket"`
	// From the beginning of one check to the beginning of the next, plus or minus a tenth, 100ms to
	// 1h.
	Interval time.Duration `koanf:"interval"`
	// For one check, at most `interval`. Unset: 2s, or `interval` if that is less.
	Timeout time.Duration `koanf:"timeout"`
	// Successes in a row that bring an unhealthy service back, up to 100.
	Rise int `koanf:"rise"`
	// Failures in a row that take a healthy service out, up to 100.
	Fall int `koanf:"fall"`
}

// HTTP asks with GET. The service is healthy if the status is from MinStatus to MaxStatus.
type HTTP struct {
	// What is asked.
	URL string `koanf:"url" secret:"true"`
	// Sent with each request.
	Headers map[string]string `koanf:"headers" secret:"true"`
	// The lowest status of a service that is well.
	MinStatus int `koanf:"min_status"`
	// The highest status of a service that is well.
	MaxStatus int `koanf:"max_status"`
	// A text that the first 64 KiB of the body must have. Unset: the body is not read.
	BodyContains string `koanf:"body_contains"`
	// For `https`.
	TLS *TLS `koanf:"tls"`
}

// TCP opens a connection and closes it.
type TCP struct {
	// `host:port`.
	Address string `koanf:"address"`
}

// GRPC asks the health service grpc.health.v1 for the state of one service.
type GRPC struct {
	// `host:port`.
	Address string `koanf:"address"`
	// The gRPC service that is asked for. Unset: the server as a whole.
	Service string `koanf:"service"`
	// A connection with TLS, also as `{}`. Unset: a connection without TLS.
	TLS *TLS `koanf:"tls"`
}

// WebSocket makes a handshake.
type WebSocket struct {
	// `ws://` or `wss://`.
	URL string `koanf:"url" secret:"true"`
	// Sent with the handshake.
	Headers map[string]string `koanf:"headers" secret:"true"`
	// With `true` the check also sends a ping after the handshake, and expects its pong.
	Ping bool `koanf:"ping"`
	// For `wss`.
	TLS *TLS `koanf:"tls"`
}

// kinds returns the names of the ways that are set.
func (c *Config) kinds() (kinds []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{{"http", c.HTTP != nil}, {"tcp", c.TCP != nil}, {"grpc", c.GRPC != nil}, {"websocket", c.WebSocket != nil}} {
		if k.set {
			kinds = append(kinds, k.name)
		}
	}
	return kinds
}

// Resolve gives unset values their defaults.
func (c *Config) Resolve() {
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	// The default must fit a shorter interval.
	c.Timeout = cmp.Or(c.Timeout, min(DefaultTimeout, max(c.Interval, minTimeout)))
	c.Rise = cmp.Or(c.Rise, DefaultRise)
	c.Fall = cmp.Or(c.Fall, DefaultFall)
	if h := c.HTTP; h != nil {
		h.MinStatus = cmp.Or(h.MinStatus, DefaultMinStatus)
		h.MaxStatus = cmp.Or(h.MaxStatus, DefaultMaxStatus)
	}
}

// Validate records what is wrong; at is the key of the check. It reads the named files, but asks no
// service.
func (c *Config) Validate(at string, p *config.Problems) {
	kinds := c.kinds()
	if len(kinds) == 0 && !p.Has(at) {
		p.Addf(at, "does not say what to check, expected http, tcp, grpc or websocket")
	}
	for _, k := range kinds[min(1, len(kinds)):] {
		p.Addf(at+"."+k, "is set beside %s, expected one of them", kinds[0])
	}
	if c.HTTP != nil {
		c.HTTP.validate(at+".http", p)
	}
	if c.TCP != nil {
		validateAddress(at+".tcp.address", c.TCP.Address, p)
	}
	if c.GRPC != nil {
		c.GRPC.validate(at+".grpc", p)
	}
	if c.WebSocket != nil {
		c.WebSocket.validate(at+".websocket", p)
	}
	p.DurationBetween(at+".interval", c.Interval, minInterval, maxInterval)
	if !p.Has(at + ".interval") {
		p.DurationBetween(at+".timeout", c.Timeout, minTimeout, c.Interval)
	}
	p.Between(at+".rise", c.Rise, 1, maxThreshold)
	p.Between(at+".fall", c.Fall, 1, maxThreshold)
}

func (h *HTTP) validate(at string, p *config.Problems) {
	secure := validateURL(at, h.URL, "http", "https", "http://127.0.0.1:8000/healthz", h.TLS, p)
	p.Headers(at+".headers", h.Headers, handshakeHeaders...)
	p.Between(at+".min_status", h.MinStatus, 100, 599)
	if !p.Has(at + ".min_status") {
		p.Between(at+".max_status", h.MaxStatus, h.MinStatus, 599)
	}
	if len(h.BodyContains) > maxBodyText {
		p.Addf(at+".body_contains", "has %d bytes, expected at most %d", len(h.BodyContains), maxBodyText)
	}
	if secure {
		h.TLS.Validate(at+".tls", p)
	}
}

func (g *GRPC) validate(at string, p *config.Problems) {
	validateAddress(at+".address", g.Address, p)
	if len(g.Service) > 255 || strings.ContainsFunc(g.Service, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.Addf(at+".service", "is %q, expected the name of a gRPC service such as speech.v1.Recognizer", g.Service)
	}
	g.TLS.Validate(at+".tls", p)
}

func (w *WebSocket) validate(at string, p *config.Problems) {
	secure := validateURL(at, w.URL, "ws", "wss", "ws://127.0.0.1:8000/stream", w.TLS, p)
	p.Headers(at+".headers", w.Headers, handshakeHeaders...)
	if secure {
		w.TLS.Validate(at+".tls", p)
	}
}

// validateURL reports whether the URL's scheme is the secure one.
func validateURL(at, raw, plain, secure, example string, t *TLS, p *config.Problems) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != plain && u.Scheme != secure {
		p.Addf(at+".url", "is not a URL that can be checked, expected one such as %s", example)
		return true // so that the TLS settings are checked too
	}
	if u.Scheme == plain && t != nil {
		p.Addf(at+".tls", "is set, but the url does not begin with %s://", secure)
	}
	return u.Scheme == secure
}

func validateAddress(at, address string, p *config.Problems) {
	host, port, err := net.SplitHostPort(address)
	number, numberErr := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || numberErr != nil || number == 0 {
		p.Addf(at, "is %q, expected host:port such as 127.0.0.1:9000", address)
	}
}

// handshakeHeaders lists the headers that a WebSocket handshake sends itself.
var handshakeHeaders = []string{
	"Connection", "Upgrade", "Sec-Websocket-Version", "Sec-Websocket-Key", "Sec-Websocket-Extensions",
}
