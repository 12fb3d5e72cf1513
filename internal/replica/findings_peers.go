package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// peers compares all running replicas. It is used by one goroutine at a time.
type peers struct {
	limits config.Findings
	read   func(ctx context.Context) ([]history.ReplicaStatus, error)
	behind map[string]behind // by replica
}

// behind is the version at which a replica stays while another one follows a newer one.
type behind struct {
	version uint64
	since   time.Time
}

func newPeers(limits config.Findings, past *history.History, store *presence.Store) *peers {
	return &peers{limits: limits, read: func(ctx context.Context) ([]history.ReplicaStatus, error) {
		return past.Replicas(ctx, store.Statuses)
	}}
}

func (p *peers) look(ctx context.Context, now time.Time) ([]finding.Finding, error) {
	all, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r history.ReplicaStatus) bool { return r.Build == "" }) // says nothing yet
	return append(p.configs(all, now), builds(all, now, p.limits.Upgrade)...), nil
}

// configs returns the finding about replicas that stay at an older configuration of pools.
func (p *peers) configs(all []history.ReplicaStatus, now time.Time) []finding.Finding {
	newest, was := uint64(0), p.behind
	for i := range all {
		newest = max(newest, all[i].ConfigVersion)
	}
	p.behind = make(map[string]behind)
	f := finding.Finding{
		ID: "replicas.config", Severity: finding.Warning,
		Next: "schedctl replicas ls shows the versions; look at the logs of the replicas that are behind, or restart them",
	}
	count := 0
	for i := range all {
		r := &all[i]
		if r.ConfigVersion == newest {
			continue
		}
		b, known := was[r.Name]
		if !known || b.version != r.ConfigVersion {
			b = behind{r.ConfigVersion, now}
		}
		if p.behind[r.Name] = b; now.Sub(b.since) <= p.limits.ConfigBehind {
			continue
		}
		count++
		f.Names = append(f.Names, fmt.Sprintf("%s (version %d)", r.Name, r.ConfigVersion))
		if at := b.since.UnixMilli(); f.SinceMS == 0 || at < f.SinceMS {
			f.SinceMS = at
		}
	}
	if count == 0 {
		return nil
	}
	f.Text = fmt.Sprintf("%s an older configuration of pools than version %d, which another one follows",
		plural.Of(count, "replica follows", "replicas follow"), newest)
	return []finding.Finding{f}
}

// builds returns the finding about replicas that have run different builds for longer than limit.
// Those in other programs are upgraded with these, and do not count.
func builds(all []history.ReplicaStatus, now time.Time, limit time.Duration) []finding.Finding {
	all = slices.DeleteFunc(slices.Clone(all), func(r history.ReplicaStatus) bool {
		return r.Embedded || r.StartedMS == 0
	})
	slices.SortFunc(all, func(a, b history.ReplicaStatus) int { return cmp.Compare(a.StartedMS, b.StartedMS) })
	since := slices.IndexFunc(all, func(r history.ReplicaStatus) bool { return r.Build != all[0].Build })
	if since < 0 || now.Sub(time.UnixMilli(all[since].StartedMS)) <= limit {
		return nil
	}
	f := finding.Finding{
		ID: "replicas.builds", Severity: finding.Warning, SinceMS: all[since].StartedMS,
		Text: "replicas have run different builds for more than " + config.FormatDuration(limit),
		Next: "schedctl replicas ls shows the builds; finish the upgrade, or go back",
	}
	for len(all) > 0 {
		first, count := all[0], len(all)
		all = slices.DeleteFunc(all, func(r history.ReplicaStatus) bool { return r.Build == first.Build })
		f.Names = append(f.Names, fmt.Sprintf("%s (%s, such as %s)",
			first.Build, plural.Of(count-len(all), "replica", "replicas"), first.Name))
	}
	return []finding.Finding{f}
}
