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

	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/registry"
)

// errNotAllowed is the failure of a check of an address that the configuration does not allow.
var errNotAllowed = errors.New("address is not in registry.checks.networks")

// errNoNetworks is the failure if no checks are made at all.
var errNoNetworks = errors.New("registry.checks.networks is empty, so no instance is checked: " +
	"set the networks of the instances, such as [10.0.0.0/8]")

// dialer refuses addresses outside of networks. It looks at the address that is dialled, after
// names are resolved, so that no name leads elsewhere.
func dialer(networks []netip.Prefix) healthcheck.Dial {
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

// configOf returns the check of a target: at its own host and port, without redirects.
func (c *Centre) configOf(t *registry.Target) (*healthcheck.Config, error) {
	if len(c.cfg.Networks) == 0 {
		return nil, errNoNetworks // do not even resolve names
	}
	address := net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	at := func(scheme string) string {
		u := url.URL{Scheme: scheme, Host: address, Path: "/"}
		if path, err := url.Parse(t.Check.Path); err == nil && t.Check.Path != "" {
			u.Path, u.RawQuery = path.Path, path.RawQuery
		}
		return u.String()
	}
	cfg := &healthcheck.Config{
		Interval: time.Duration(t.Check.Interval), Timeout: time.Duration(t.Check.Timeout), Rise: t.Check.Rise,
		Fall: t.Check.Fall,
	}
	switch t.Check.Kind {
	case "http":
		cfg.HTTP = &healthcheck.HTTP{URL: at("http")}
	case "https":
		// Instances are addressed by IP, and few certificates name an IP. A check sends no secret.
		cfg.HTTP = &healthcheck.HTTP{URL: at("https"), TLS: &healthcheck.TLS{InsecureSkipVerify: true}}
	case "tcp":
		cfg.TCP = &healthcheck.TCP{Address: address}
	case "grpc":
		cfg.GRPC = &healthcheck.GRPC{Address: address, Service: t.Check.Path}
	case "websocket":
		cfg.WebSocket = &healthcheck.WebSocket{URL: at("ws")}
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

// unread is the error of a list that lacks some services, as [registry.UnreadError] is.
type unread interface {
	error
	Unread(service string) bool
}

// unread returns the known targets of services that could not be read. That they are missing from
// the list does not mean that they are gone.
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
