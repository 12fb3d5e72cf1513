package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/plural"
)

// full returns the finding about servers of Redis that use this share of their maxmemory or more;
// none if the share is 0.
func full(servers []history.ServerStatus, share float64) []finding.Finding {
	f := finding.Finding{
		ID: "redis.memory", Severity: finding.Warning,
		Next: "redis-cli INFO memory; raise it with redis-cli CONFIG SET maxmemory and in redis.conf, or lower retention",
	}
	count := 0
	for i := range servers {
		s := &servers[i]
		use := float64(s.UsedBytes) / float64(max(s.MaxBytes, 1))
		if share == 0 || s.MaxBytes <= 0 || use < share {
			continue
		}
		count++
		if use >= dispatch.MemoryLimit {
			f.Severity = finding.Critical
		}
		if len(f.Names) < finding.MaxNames {
			f.Names = append(f.Names, fmt.Sprintf("%s (%.0f %%)", serverName(s), 100*use))
		}
	}
	if count == 0 {
		return nil
	}
	f.Text = fmt.Sprintf("%s %.0f %% of maxmemory or more; submits are refused from %.0f %% on",
		plural.Of(count, "server of Redis uses", "servers of Redis use"), 100*share, 100*dispatch.MemoryLimit)
	return []finding.Finding{f}
}

// lagging returns the finding about replicas of Redis that their masters, which the first cells
// have, did not hear from within limit.
func lagging(ctx context.Context, cells *cell.Set, masters int, limit time.Duration) ([]finding.Finding, error) {
	var behind []string
	for i := range min(masters, cells.Len()) {
		some, err := cells.At(i).ReplicasBehind(ctx, limit)
		if err != nil {
			return nil, err
		}
		behind = append(behind, some...)
	}
	slices.Sort(behind)
	if behind = slices.Compact(behind); len(behind) == 0 {
		return nil, nil
	}
	return []finding.Finding{{
		ID: "redis.replicas", Severity: finding.Warning, Names: behind,
		Text: plural.Of(len(behind), "replica of Redis does", "replicas of Redis do") +
			" not keep up with the master: a failover would lose the newest changes",
		Next: "redis-cli INFO replication on the master shows state and lag; look at the replica and the network to it",
	}}, nil
}

// serverName names a server for people: on a cluster by its cells.
func serverName(s *history.ServerStatus) string {
	if s.Address != "" {
		return s.Address
	}
	return "cell " + strings.Trim(fmt.Sprint(s.Cells), "[]")
}
