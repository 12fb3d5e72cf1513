// Package doctor checks servers of Redis against docs/redis.md: settings, the time of a call,
// clocks, slow calls, deleted keys, persistence, and how replicas of Redis follow their masters.
//
// Package cell checks what a replica does not start without, each time. The checks here are asked
// for, because they cost more calls, or need rights in Redis that a replica does without.
package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/finding"
)

// Defaults of Config.
const (
	DefaultLatency = 5 * time.Millisecond
	DefaultClock   = time.Second
	DefaultSlow    = time.Hour
)

// Config says from when on something is wrong. The zero value of each field means its default.
type Config struct {
	// Latency is the longest time that half of some bare calls may take.
	Latency time.Duration
	// Clock is how far a server's clock may be from the clock here.
	Clock time.Duration
	// Slow is the age up to which an entry of the slow log counts.
	Slow time.Duration
	// Root is the root folder of this machine, for servers on it.
	Root fs.FS
}

// Server is one server to check.
type Server struct {
	// Addr is host:port.
	Addr string
	// Client sends its commands to this server alone.
	Client rueidis.Client
	// Replica is true if another server named it as its replica. Then it is no mistake that it is
	// one.
	Replica bool
}

// Look checks servers, at the same time. Each kind of finding is there once, and names the servers.
// The error is nil or of type finding.Unchecked.
func Look(ctx context.Context, servers []Server, cfg Config) ([]finding.Finding, error) {
	if cfg.Latency == 0 {
		cfg.Latency = DefaultLatency
	}
	if cfg.Clock == 0 {
		cfg.Clock = DefaultClock
	}
	if cfg.Slow == 0 {
		cfg.Slow = DefaultSlow
	}
	if cfg.Root == nil {
		cfg.Root = os.DirFS("/")
	}
	all := make([]*facts, len(servers))
	var reading sync.WaitGroup
	for i := range servers {
		reading.Go(func() { all[i] = read(ctx, &servers[i], &cfg) })
	}
	reading.Wait()
	slices.SortFunc(all, func(a, b *facts) int { return strings.Compare(a.addr, b.addr) })
	var found []finding.Finding
	for i := range checks {
		if f, wrong := checks[i].look(all); wrong {
			found = append(found, f)
		}
	}
	if unchecked := notChecked(all); len(unchecked) > 0 {
		return found, unchecked
	}
	return found, nil
}

// look returns the finding of a check.
func (c *check) look(all []*facts) (f finding.Finding, wrong bool) {
	for _, server := range all {
		if server.err != nil && c.id != silent {
			continue
		}
		if detail := c.wrong(server); detail != "" {
			f.Names = append(f.Names, fmt.Sprintf("%s (%s)", server.addr, detail))
		}
	}
	f.ID, f.Severity, f.Text, f.Next, f.Docs = c.id, c.severity, c.text, c.next, c.docs
	return f, len(f.Names) > 0
}

// notChecked returns what could not be checked, a line for each server and reason.
func notChecked(all []*facts) (lines finding.Unchecked) {
	for _, server := range all {
		lines = append(lines, server.unchecked...)
		if len(server.untold) > 0 {
			slices.Sort(server.untold)
			lines = append(lines, fmt.Sprintf("redis at %s does not tell %v: compare by hand with %s",
				server.addr, slices.Compact(server.untold), settingsPage))
		}
	}
	return lines
}
