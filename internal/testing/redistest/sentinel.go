package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

const (
	// masterSet is the name by which the sentinels know the master.
	masterSet = "main"
	sentinels = 3
	// With sentinelConfig a master counts as dead after a second of silence.
	sentinelConfig = "sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s 1000\nsentinel " +
		"failover-timeout %[1]s 5000\n"
)

// Sentinels is one test's own master with one replica and three sentinels, which promote the
// replica when the master dies. Master and Replica have the names of their roles at the start.
type Sentinels struct {
	Master, Replica *Server
	tb              testing.TB
	sentinels       nodes
}

// NewSentinels starts servers and sentinels that are stopped at the end of the test. The servers
// keep their data in append-only files. It takes some three seconds, until the sentinels have found
// each other.
func NewSentinels(tb testing.TB) *Sentinels {
	tb.Helper()
	servers := NewWithReplicas(tb, 1, AppendOnly("everysec"))
	s := &Sentinels{tb: tb, Master: servers.Server, Replica: servers.Replicas[0]}
	port := s.Master.Process().Port()
	tb.Cleanup(func() {
		if err := s.sentinels.stop(); err != nil {
			tb.Errorf("stop sentinels: %v", err)
		}
	})
	for i := range sentinels {
		file := filepath.Join(tb.TempDir(), fmt.Sprintf("sentinel-%d.conf", i))
		// A sentinel keeps what it knows in this file.
		if err := os.WriteFile(file, fmt.Appendf(nil, sentinelConfig, masterSet, port), 0o600); err != nil {
			tb.Fatal(err)
		}
		proc, err := startServer(func(c *redisserver.Config) { c.ConfigFile = file }, Args("--sentinel"))
		if err != nil {
			tb.Fatal(explain(err))
		}
		s.sentinels = append(s.sentinels, proc)
	}
	s.await("the sentinels to find each other", func(ctx context.Context) bool {
		for _, proc := range s.sentinels {
			if !s.knowsAll(ctx, proc) {
				return false
			}
		}
		return true
	})
	return s
}

// URL returns the URL for the programs: the sentinels, and the name of the master.
func (s *Sentinels) URL() string {
	var addrs []string
	for _, proc := range s.sentinels {
		addrs = append(addrs, proc.Addr())
	}
	return "redis://" + addrs[0] + "?master_set=" + masterSet + "&addr=" + strings.Join(addrs[1:], "&addr=")
}

// knowsAll reports whether a sentinel knows the replica and the other sentinels.
func (s *Sentinels) knowsAll(ctx context.Context, proc *redisserver.Server) bool {
	facts, err := Ask(ctx, proc.Addr(), "SENTINEL", "MASTER", masterSet).AsStrMap()
	return err == nil && facts["num-slaves"] == "1" && facts["num-other-sentinels"] == strconv.Itoa(sentinels-1) &&
		facts["flags"] == "master"
}

func (s *Sentinels) await(what string, cond func(context.Context) bool) {
	s.tb.Helper()
	if err := Await(cond); err != nil {
		s.tb.Fatalf("sentinels: waited for %s: %v", what, err)
	}
}
