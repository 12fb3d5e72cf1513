package docker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
)

// SkipEnv is the environment variable by which a developer without an engine skips these tests.
const SkipEnv = "FREESLOT_NO_DOCKER"

const (
	label       = "freeslot.test"
	callLimit   = 2 * time.Minute
	leftoverAge = 30 * time.Minute
)

// engine connects to the Docker engine, and fails or skips the test when there is none.
func engine(tb testing.TB) *dockertest.Pool {
	tb.Helper()
	if os.Getenv(SkipEnv) == "1" {
		tb.Skipf("%s=1: the Docker tests do not run", SkipEnv)
	}
	pool, err := dockertest.NewPool("")
	if err == nil {
		// NewPool connects to nothing.
		err = pool.Client.Ping()
	}
	if err != nil {
		tb.Fatalf("no Docker engine answers; start one with scripts/dockerd.sh start, or run make docker-test: %v", err)
	}
	pool.Client.SetTimeout(callLimit)
	tb.Cleanup(pool.Client.HTTPClient.CloseIdleConnections)
	return pool
}

// Answers reports whether there is a Docker engine and the tests may use it.
func Answers() bool {
	if os.Getenv(SkipEnv) == "1" {
		return false
	}
	pool, err := dockertest.NewPool("")
	if err != nil {
		return false
	}
	defer pool.Client.HTTPClient.CloseIdleConnections()
	return pool.Client.Ping() == nil
}

// prepared holds what the first container of a test binary makes ready for all: parallel tests
// would import the image several times and sweep the same leftovers.
var prepared struct {
	once            sync.Once
	repository, tag string
	err             error
}

// prepare returns the image to run.
func prepare(client *dc.Client) (repository, tag string, err error) {
	p := &prepared
	p.once.Do(func() {
		if p.err = sweep(client); p.err == nil {
			p.repository, p.tag, p.err = image(client)
		}
	})
	return p.repository, p.tag, p.err
}

// sweep removes leftovers of killed test runs; the containers of running test runs are younger. A
// network has the name of its only container.
func sweep(client *dc.Client) error {
	containers, err := client.ListContainers(dc.ListContainersOptions{
		All: true, Filters: map[string][]string{"label": {label}},
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers {
		if time.Since(time.Unix(c.Created, 0)) < leftoverAge {
			continue
		}
		errs = append(errs, client.RemoveContainer(dc.RemoveContainerOptions{ID: c.ID, Force: true, RemoveVolumes: true}))
		for _, name := range c.Names {
			// This does not fail the coming tests: the next one picks another subnet.
			_ = client.RemoveNetwork(strings.TrimPrefix(name, "/"))
		}
	}
	return errors.Join(errs...)
}

const subnetTries = 20

// createNetwork makes a network of its own for one container. It names the subnet, because only
// then a container can ask for an address. The engine refuses the subnet of another network; that
// is not tried again.
func createNetwork(pool *dockertest.Pool, name string) (*dockertest.Network, error) {
	var err error
	for i := range subnetTries {
		subnet := fmt.Sprintf("10.213.%d.0/24", (os.Getpid()*7+i*13+int(networks.Add(1)))%256)
		var n *dockertest.Network
		n, err = pool.CreateNetwork(name, func(c *dc.CreateNetworkOptions) {
			c.Labels = map[string]string{label: "1"}
			c.IPAM = &dc.IPAMOptions{Config: []dc.IPAMConfig{{Subnet: subnet}}}
		})
		if err == nil {
			return n, nil
		}
		if !strings.Contains(strings.ToLower(err.Error()), "overlap") {
			break
		}
	}
	return nil, fmt.Errorf("create network: %w", err)
}
