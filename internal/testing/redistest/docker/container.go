package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const (
	redisPort = "6379"
	dialLimit = time.Second
)

// networks numbers the networks of this test binary, so that parallel tests try different subnets
// first.
var networks atomic.Int64

// Container is a Redis in a container with a network of its own. Any failure fails the test. Its
// methods belong to the test's own goroutine.
type Container struct {
	tb      testing.TB
	pool    *dockertest.Pool
	res     *dockertest.Resource
	network *dockertest.Network
	host    string // published address on the loopback interface
	ip      string // address in the network; kept over Connect and Start
}

// RunOn starts a container for the test and returns its URL. A suite that takes a URL runs on it as
// it does on a process of redistest.
func RunOn(tb testing.TB) (url string) {
	tb.Helper()
	return New(tb).Target().URL()
}

// New starts a Redis that keeps its data in an append-only file, written with every command, and
// removes it at the end of the test.
func New(tb testing.TB) *Container {
	tb.Helper()
	c := &Container{tb: tb, pool: engine(tb)}
	repository, tag, err := prepare(c.pool.Client)
	c.must("prepare", err)

	name := fmt.Sprintf("freeslot-test-%s", redistest.At("docker", false, "").Prefix(tb))
	c.network, err = createNetwork(c.pool, name)
	c.must("network", err)
	tb.Cleanup(c.Purge)

	// A port that the engine picks would change with each Start and Connect.
	port, err := redisserver.FreePort()
	c.must("port", err)
	c.host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	c.res, err = c.pool.RunWithOptions(&dockertest.RunOptions{
		Name:       name,
		Repository: repository,
		Tag:        tag,
		Cmd: []string{
			"redis-server", "--port", redisPort, "--bind", "0.0.0.0", "--protected-mode", "no",
			"--dir", "/data", "--save", "", "--appendonly", "yes", "--appendfsync", "always",
		},
		Labels:       map[string]string{label: "1"},
		ExposedPorts: []string{redisPort + "/tcp"},
		PortBindings: map[dc.Port][]dc.PortBinding{
			redisPort + "/tcp": {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(port)}},
		},
	}, func(host *dc.HostConfig) {
		// Without the mode it would be in the default network as well, and Disconnect would cut
		// nothing.
		host.NetworkMode = c.network.Network.ID
	})
	c.must("run", err)
	if c.ip = c.res.GetIPInNetwork(c.network); c.ip == "" {
		tb.Fatal("docker: the container has no address in its network")
	}
	c.await()
	return c
}

// Target returns the container by its published port on the loopback interface. While the network
// is cut this port refuses connections; while the server is paused it takes them and nothing
// answers.
func (c *Container) Target() *redistest.Target { return redistest.At("docker", false, c.host) }

// Inside returns the container by its own address, which the host can reach on Linux. While the
// network is cut, packets to it vanish, as in a partition.
func (c *Container) Inside() *redistest.Target {
	return redistest.At("docker-inside", false, net.JoinHostPort(c.ip, redisPort))
}

// Pause freezes the server.
func (c *Container) Pause() { c.must("pause", c.pool.Client.PauseContainer(c.res.Container.ID)) }

// Unpause ends a Pause.
func (c *Container) Unpause() { c.must("unpause", c.pool.Client.UnpauseContainer(c.res.Container.ID)) }

// Kill ends the server as a crash does, and returns when it is gone. Its data stays.
func (c *Container) Kill() {
	id := c.res.Container.ID
	c.must("kill", c.pool.Client.KillContainer(dc.KillContainerOptions{ID: id, Signal: dc.SIGKILL}))
	_, err := c.pool.Client.WaitContainer(id)
	c.must("wait for the end", err)
}

// Start starts a killed server again, at the same addresses, and returns when it answers.
func (c *Container) Start() {
	c.must("start", c.pool.Client.StartContainer(c.res.Container.ID, nil))
	c.await()
}

// Disconnect cuts the container off its network.
func (c *Container) Disconnect() {
	c.must("disconnect", c.pool.Client.DisconnectNetwork(c.network.Network.ID,
		dc.NetworkConnectionOptions{Container: c.res.Container.ID}))
}

// Connect ends a Disconnect and returns when the server answers.
func (c *Container) Connect() {
	c.connect()
	c.await()
}

// Purge removes the container, its data and its network. New calls it at the end of the test; it
// can be called more than once.
func (c *Container) Purge() {
	if c.res != nil {
		c.check("purge", c.pool.Purge(c.res))
		c.res = nil
	}
	if c.network != nil {
		c.check("remove network", c.pool.RemoveNetwork(c.network))
		c.network = nil
	}
}

// connect asks for the earlier address. After a kill and start the engine gives the same address by
// itself, because the container is alone in its subnet.
func (c *Container) connect() {
	c.must("connect", c.pool.Client.ConnectNetwork(c.network.Network.ID, dc.NetworkConnectionOptions{
		Container:      c.res.Container.ID,
		EndpointConfig: &dc.EndpointConfig{IPAMConfig: &dc.EndpointIPAMConfig{IPv4Address: c.ip}},
	}))
}

// await returns when the server answers at its published port.
func (c *Container) await() {
	var err error
	late := redistest.Await(func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, dialLimit)
		defer cancel()
		err = redistest.Ask(ctx, c.host, "PING").Error()
		return err == nil
	})
	if late != nil {
		c.must("wait for PONG", errors.Join(late, err))
	}
}

func (c *Container) must(operation string, err error) {
	if err != nil {
		c.tb.Fatalf("docker: %s: %v", operation, err)
	}
}

func (c *Container) check(operation string, err error) {
	if err != nil {
		c.tb.Errorf("docker: %s: %v", operation, err)
	}
}
