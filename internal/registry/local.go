package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/loopback"
)

// where says how this process and Redis see each other.
type where struct {
	// host is the address by which this process reaches Redis.
	host string
	// loopback is true if Redis is on this machine, and so other programs may be, too.
	loopback bool
}

// locate returns what route finds. If route finds nothing, it returns the last result.
func (c *conn) locate(ctx context.Context) (where, error) {
	at, err := c.route(ctx)
	if err == nil {
		c.located.Store(&at)
	} else if before := c.located.Load(); before != nil {
		return *before, nil
	}
	return at, err
}

// route finds the local address of connections to Redis. It asks the kernel for the route and
// sends nothing.
func (c *conn) route(ctx context.Context) (where, error) {
	addrs := slices.Sorted(maps.Keys(c.commands.Nodes()))
	if len(addrs) == 0 {
		return where{}, errors.New("there is no connection to redis")
	}
	addr := addrs[0]
	if strings.HasPrefix(addr, "/") { // a Unix socket
		return where{host: "127.0.0.1", loopback: true}, nil
	}
	var d net.Dialer
	route, err := d.DialContext(ctx, "udp", addr)
	if err != nil {
		return where{}, fmt.Errorf("route to redis at %s: %w", addr, err)
	}
	defer func() { _ = route.Close() }() // it sent nothing
	local, _, err := net.SplitHostPort(route.LocalAddr().String())
	if err != nil {
		return where{}, fmt.Errorf("route to redis at %s: %w", addr, err)
	}
	remote, _, err := net.SplitHostPort(route.RemoteAddr().String())
	if err != nil {
		return where{}, fmt.Errorf("route to redis at %s: %w", addr, err)
	}
	return where{host: local, loopback: loopback.Is(remote)}, nil
}

// place fills in the host of a registration. It refuses an instance on loopback unless Redis is on
// loopback, too: two machines would take over each other's 127.0.0.1:8080.
func (at where) place(r Registration) (Registration, error) {
	switch {
	case r.Host == "":
		r.Host = at.host
	case loopback.Is(r.Host) && !at.loopback:
		return r, freeslot.Invalid(
			"host", "is %s, which only this machine reaches, and redis is on another one; expected an address for all clients",
			r.Host,
		)
	}
	return r, nil
}

// unplacedID returns the id of an instance whose own id needs its host. No other id has a brace.
func unplacedID(port int) string { return fmt.Sprintf("{host}:%d", port) }
