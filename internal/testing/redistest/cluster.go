package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

const (
	masters  = 3
	slots    = 16384
	busTries = 5

	// formTimeout is the node timeout while the cluster forms: a master that joins waits for it
	// before it takes writes. runTimeout follows. Three masters without replicas cannot fail over,
	// so with a short timeout a busy machine would only bring the cluster down.
	formTimeout = "500"
	runTimeout  = "5000"
)

// ClusterServer is one test's own cluster of three masters without replicas.
type ClusterServer struct {
	*Target
	nodes nodes
}

// NewCluster starts a cluster that is stopped at the end of the test. It takes about three seconds;
// a test that does not harm the servers uses Cluster.
func NewCluster(tb testing.TB) *ClusterServer {
	tb.Helper()
	n, err := startCluster()
	if err != nil {
		tb.Fatal(explain(err))
	}
	tb.Cleanup(func() {
		if err := n.stop(); err != nil {
			tb.Errorf("stop cluster: %v", err)
		}
	})
	return &ClusterServer{Target: n.target(), nodes: n}
}

// Processes returns the masters, in the order of their hash slots and of Addrs. The caller owns the
// slice.
func (c *ClusterServer) Processes() []*redisserver.Server {
	return append([]*redisserver.Server(nil), c.nodes...)
}

// nodes holds the masters of a cluster.
type nodes []*redisserver.Server

func (n nodes) target() *Target {
	addrs := make([]string, len(n))
	for i, proc := range n {
		addrs[i] = proc.Addr()
	}
	return own("cluster", true, addrs...)
}

func (n nodes) stop() error {
	errs := make(chan error, len(n))
	for _, proc := range n {
		go func() { errs <- stopServer(proc) }()
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}

// startCluster returns when every master reports that the cluster is whole.
func startCluster() (nodes, error) {
	var n nodes
	var bus []string
	for range masters {
		proc, port, err := startNode()
		if err != nil {
			return nil, errors.Join(err, n.stop())
		}
		n, bus = append(n, proc), append(bus, port)
	}
	if err := n.form(bus); err != nil {
		return nil, errors.Join(fmt.Errorf("form a cluster: %w", err), n.stop())
	}
	return n, nil
}

// startNode sets the bus port: the default, port + 10000, may not exist or may be taken.
func startNode() (*redisserver.Server, string, error) {
	var err error
	for range busTries {
		var port int
		if port, err = redisserver.FreePort(); err != nil {
			break
		}
		bus := strconv.Itoa(port)
		var proc *redisserver.Server
		if proc, err = startServer(Args(
			"--repl-diskless-sync-delay", "0", // otherwise a new replica waits five seconds
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-announce-ip", "127.0.0.1",
			"--cluster-node-timeout", formTimeout,
		)); !errors.Is(err, redisserver.ErrPortTaken) {
			return proc, bus, err
		}
	}
	return nil, "", err
}

// form gives each master its share of the hash slots, and introduces the first one to the others.
func (n nodes) form(bus []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for i, proc := range n {
		first, last := i*slots/len(n), (i+1)*slots/len(n)-1
		if err := errors.Join(
			run(ctx, proc, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)),
			run(ctx, proc, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)),
		); err != nil {
			return err
		}
	}
	for i, proc := range n[1:] {
		if err := run(ctx, n[0], "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(proc.Port()), bus[i+1]); err != nil {
			return err
		}
	}
	for _, proc := range n { // each has to know all the others, with their slots
		var info string
		if err := Await(func(ctx context.Context) bool {
			info, _ = Ask(ctx, proc.Addr(), "CLUSTER", "INFO").ToString()
			return formed(info)
		}); err != nil {
			return fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(info), " "))
		}
	}
	for _, proc := range n {
		if err := run(ctx, proc, "CONFIG", "SET", "cluster-node-timeout", runTimeout); err != nil {
			return err
		}
	}
	return nil
}

// formed reads the reply of CLUSTER INFO. In RESP3 that is a verbatim string, whose type is part of
// it.
func formed(info string) bool {
	lines := make(map[string]bool)
	for _, line := range strings.Fields(strings.TrimPrefix(info, "txt:")) {
		lines[line] = true
	}
	return lines["cluster_state:ok"] && lines[fmt.Sprintf("cluster_slots_ok:%d", slots)] &&
		lines[fmt.Sprintf("cluster_known_nodes:%d", masters)] && lines[fmt.Sprintf("cluster_size:%d", masters)]
}

func run(ctx context.Context, proc *redisserver.Server, args ...string) error {
	if err := Ask(ctx, proc.Addr(), args...).Error(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}
