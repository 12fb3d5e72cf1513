package centre

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/internal/node/check"
	"github.com/freeslot/freeslot/internal/registry"
)

// errNotAllowed is the failure of a check of an address that the configuration does not allow.
var errNotAllowed = errors.New("address is not in registry.checks.networks")

// errNoNetworks says that no checks are made.
var errNoNetworks = errors.New("registry.checks.networks is empty")

// dialer refuses addresses outside of networks. It looks at the address that is dialled, after the
// resolution of names, so that no name leads elsewhere.
func dialer(networks []netip.Prefix) check.Dial {
	d := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		ip := to.Addr().Unmap().WithZone("")
		for _, n := range networks {
			if n.Contains(ip) {
				return nil
			}
		}
		return fmt.Errorf("%w: %s", errNotAllowed, ip)
	}}
	return d.DialContext
}

// configOf is the check of a target: at its own host and port, without redirects.
func (c *Centre) configOf(t *registry.Target) (*check.Config, error) {
	if len(c.cfg.Networks) == 0 {
		return nil, errNoNetworks // not even names are resolved
	}
	address := net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	at := func(scheme string) string {
		u := url.URL{Scheme: scheme, Host: address, Path: "/"}
		if path, err := url.Parse(t.Check.Path); err == nil && t.Check.Path != "" {
			u.Path, u.RawQuery = path.Path, path.RawQuery
		}
		return u.String()
	}
	cfg := &check.Config{Interval: time.Duration(t.Check.Interval), Timeout: time.Duration(t.Check.Timeout), Rise: t.Check.Rise, Fall: t.Check.Fall}
	switch t.Check.Kind {
	case "http":
		cfg.HTTP = &check.HTTP{URL: at("http")}
	case "https":
		// Instances are addressed by IP, for which few certificates are made, and a check sends no
		// secret.
		cfg.HTTP = &check.HTTP{URL: at("https"), TLS: &check.TLS{InsecureSkipVerify: true}}
	case "tcp":
		cfg.TCP = &check.TCP{Address: address}
	case "grpc":
		cfg.GRPC = &check.GRPC{Address: address, Service: t.Check.Path}
	case "websocket":
		cfg.WebSocket = &check.WebSocket{URL: at("ws")}
	default:
		probe := c.cfg.Probes[t.Check.Kind]
		if probe == nil {
			return nil, fmt.Errorf("this replica knows no check of kind %q", t.Check.Kind)
		}
		path := t.Check.Path
		cfg.Func = func(ctx context.Context) error { return probe(ctx, c.dial, address, path) }
	}
	cfg.Resolve()
	return cfg, nil
}

// unread is an error of a list that lacks some services, as [registry.UnreadError] is.
type unread interface {
	error
	Unread(service string) bool
}

// unread are the targets of services that could not be read, as this replica knows them: that they
// are missing does not say that they are gone.
func (c *Centre) unread(err unread) (out []registry.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.targets {
		if err.Unread(t.Service) {
			out = append(out, t.Target)
		}
	}
	return out
}
