package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// failoverTimeout is the node timeout of a cluster with replicas. It is short, because its tests
// wait for failovers.
const failoverTimeout = "1000"

// ReplicaCluster is one test's own cluster of three masters with a replica each, which can fail
// over, move slots and grow. An error in a method fails the test. Only the test's own goroutine may
// call its methods.
type ReplicaCluster struct {
	*Target
	tb    testing.TB
	procs []*redisserver.Server
}

// NewReplicaCluster starts a cluster that is stopped at the end of the test. It takes some five
// seconds.
func NewReplicaCluster(tb testing.TB) *ReplicaCluster {
	tb.Helper()
	n, err := startCluster()
	if err != nil {
		tb.Fatal(explain(err))
	}
	c := &ReplicaCluster{Target: n.target(), tb: tb, procs: n}
	tb.Cleanup(c.stop)
	replicas := c.join(len(n))
	for i, replica := range replicas {
		c.run(replica, "CLUSTER", "REPLICATE", c.id(n[i]))
	}
	for _, replica := range replicas {
		c.await("a replica", func(ctx context.Context) bool { return synced(ctx, replica) })
	}
	for _, proc := range c.procs {
		c.run(proc, "CONFIG", "SET", "cluster-node-timeout", failoverTimeout)
	}
	return c
}

func (c *ReplicaCluster) stop() {
	if err := nodes(c.procs).stop(); err != nil {
		c.tb.Errorf("stop cluster: %v", err)
	}
}

// Processes returns all nodes, masters first as they were at the start. The caller owns the slice.
func (c *ReplicaCluster) Processes() []*redisserver.Server {
	return append([]*redisserver.Server(nil), c.procs...)
}

// Join adds a node without slots, and returns when all nodes know it.
func (c *ReplicaCluster) Join() *redisserver.Server {
	c.tb.Helper()
	return c.join(1)[0]
}

func (c *ReplicaCluster) join(n int) []*redisserver.Server {
	c.tb.Helper()
	before := len(c.procs)
	for range n {
		proc, bus, err := startNode()
		if err != nil {
			c.tb.Fatal(explain(err))
		}
		c.procs = append(c.procs, proc)
		c.run(c.procs[0], "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(proc.Port()), bus)
	}
	known := fmt.Sprintf("cluster_known_nodes:%d\r", len(c.procs))
	c.await("the new node to be known", func(ctx context.Context) bool {
		for _, p := range c.procs {
			if p.PID() == 0 {
				continue
			}
			if info, err := Ask(ctx, p.Addr(), "CLUSTER", "INFO").ToString(); err != nil || !strings.Contains(info, known) {
				return false
			}
		}
		return true
	})
	return c.procs[before:]
}

// Owner returns the master of a slot. It waits until all running nodes agree on one.
func (c *ReplicaCluster) Owner(slot uint16) *redisserver.Server {
	c.tb.Helper()
	var owner *redisserver.Server
	c.await("the nodes to agree on a master", func(ctx context.Context) bool {
		owner = nil
		for _, p := range c.procs {
			if p.PID() == 0 {
				continue
			}
			ports := holders(ctx, p, slot)
			if len(ports) == 0 || owner != nil && owner.Port() != ports[0] {
				return false
			}
			owner = c.at(ports[0])
		}
		return owner != nil && owner.PID() != 0
	})
	return owner
}

// Failover makes a replica of the slot's master take its place in good order, and returns it.
func (c *ReplicaCluster) Failover(slot uint16) *redisserver.Server {
	c.tb.Helper()
	owner := c.Owner(slot)
	var replica *redisserver.Server
	c.await("a replica", func(ctx context.Context) bool {
		for _, port := range holders(ctx, owner, slot)[1:] {
			if p := c.at(port); p != nil && p.PID() != 0 {
				replica = p
			}
		}
		return replica != nil && synced(ctx, replica)
	})
	c.run(replica, "CLUSTER", "FAILOVER")
	c.await("the failover", func(context.Context) bool { return c.Owner(slot) == replica })
	return replica
}

// BeginMigration begins to move a slot to another master, moves only the named keys, and returns
// the master that has the slot until MigrateSlot ends the migration.
func (c *ReplicaCluster) BeginMigration(
	slot uint16, to *redisserver.Server, keys ...string,
) (from *redisserver.Server) {
	c.tb.Helper()
	from, number := c.Owner(slot), strconv.Itoa(int(slot))
	c.run(to, "CLUSTER", "SETSLOT", number, "IMPORTING", c.id(from))
	c.run(from, "CLUSTER", "SETSLOT", number, "MIGRATING", c.id(to))
	for _, key := range keys {
		c.run(from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), key, "0", "5000")
	}
	return from
}

// MigrateSlot moves a slot with its keys to another master.
func (c *ReplicaCluster) MigrateSlot(slot uint16, to *redisserver.Server) {
	c.tb.Helper()
	from, toID, number := c.BeginMigration(slot, to), c.id(to), strconv.Itoa(int(slot))
	c.await("the keys to move", func(ctx context.Context) bool {
		keys, err := Ask(ctx, from.Addr(), "CLUSTER", "GETKEYSINSLOT", number, "100").AsStrSlice()
		if err == nil && len(keys) > 0 {
			move := append([]string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), "", "0", "5000", "KEYS"}, keys...)
			_ = Ask(ctx, from.Addr(), move...).Error() // the next round shows the result
			return false
		}
		return err == nil
	})
	c.run(to, "CLUSTER", "SETSLOT", number, "NODE", toID)
	c.run(from, "CLUSTER", "SETSLOT", number, "NODE", toID)
	c.await("the slot to move", func(context.Context) bool { return c.Owner(slot) == to })
}

// synced reports whether a replica has all data of its master.
func synced(ctx context.Context, replica *redisserver.Server) bool {
	info, err := Ask(ctx, replica.Addr(), "INFO", "replication").ToString()
	return err == nil && strings.Contains(info, "master_link_status:up")
}

// online returns how many replicas of a master have acknowledged something.
func online(ctx context.Context, master *redisserver.Server) int {
	info, err := Ask(ctx, master.Addr(), "INFO", "replication").ToString()
	if err != nil {
		return 0
	}
	return strings.Count(info, ",state=online,")
}

func (c *ReplicaCluster) at(port int) *redisserver.Server {
	for _, p := range c.procs {
		if p.Port() == port {
			return p
		}
	}
	return nil
}

func (c *ReplicaCluster) id(proc *redisserver.Server) string {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	id, err := Ask(ctx, proc.Addr(), "CLUSTER", "MYID").ToString()
	if err != nil {
		c.tb.Fatal(err)
	}
	return id
}

func (c *ReplicaCluster) run(proc *redisserver.Server, args ...string) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := Ask(ctx, proc.Addr(), args...).Error(); err != nil {
		c.tb.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

func (c *ReplicaCluster) await(what string, cond func(context.Context) bool) {
	c.tb.Helper()
	if err := Await(cond); err != nil {
		c.tb.Fatalf("cluster: waited for %s: %v", what, err)
	}
}

// holders returns the ports of a slot's master and its replicas, as one node sees them.
func holders(ctx context.Context, proc *redisserver.Server, slot uint16) []int {
	ranges, err := Ask(ctx, proc.Addr(), "CLUSTER", "SLOTS").ToArray()
	if err != nil {
		return nil
	}
	for _, r := range ranges {
		entry, err := r.ToArray()
		if err != nil || len(entry) < 3 {
			continue
		}
		first, _ := entry[0].AsInt64()
		last, _ := entry[1].AsInt64()
		if int64(slot) < first || int64(slot) > last {
			continue
		}
		var ports []int
		for _, node := range entry[2:] {
			if parts, err := node.ToArray(); err == nil && len(parts) > 1 {
				port, _ := parts[1].AsInt64()
				ports = append(ports, int(port))
			}
		}
		return ports
	}
	return nil
}
