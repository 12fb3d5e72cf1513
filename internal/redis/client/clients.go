package client

import (
	"errors"
	"sync"

	"github.com/redis/rueidis"
)

// Role opens a client for one server or for a cluster: Commands or Subscriber.
type Role func(Config) (rueidis.Client, error)

// Clients holds the clients of one role: one for each standalone server, or one for a cluster. They
// are safe for concurrent use.
type Clients struct {
	topology *Topology
	clients  []rueidis.Client // by server
}

// Open opens the clients of a role. It fails only if no server answers. The client of a standalone
// server that is down refuses commands with rueidis.ErrClosing, and connects by itself once the
// server is up.
func (t *Topology) Open(role Role) (*Clients, error) {
	opened := make([]rueidis.Client, t.Servers)
	errs := make([]error, t.Servers)
	var dials sync.WaitGroup
	for i := range t.Servers {
		dials.Go(func() { opened[i], errs[i] = role(t.Config(i)) })
	}
	dials.Wait()
	alive := -1
	for i, err := range errs {
		if err == nil {
			alive = i
		}
	}
	if alive < 0 {
		return nil, errors.Join(errs...)
	}
	c := &Clients{topology: t, clients: opened}
	for i, err := range errs {
		if err == nil {
			continue
		}
		late, err := newLate(role, t.Config(i), t.Config(alive))
		if err != nil {
			opened[i] = nil
			c.Close()
			return nil, err
		}
		opened[i] = late
	}
	return c, nil
}

// For returns the client for a cell's server.
func (c *Clients) For(cell int) rueidis.Client { return c.clients[c.topology.Server(cell)] }

// All returns the clients by server; the caller must not change the slice.
func (c *Clients) All() []rueidis.Client { return c.clients }

// Close closes every client.
func (c *Clients) Close() {
	var closing sync.WaitGroup
	for _, client := range c.clients {
		if client != nil {
			closing.Go(client.Close)
		}
	}
	closing.Wait()
}
