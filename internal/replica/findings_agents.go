package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// eachAgent calls see with what the agent of each node said last of the machine.
type eachAgent func(ctx context.Context, see func(node, resources string)) error

// cachedAgents returns what a replica knows of the agents.
func cachedAgents(nodes *cache.Cache) eachAgent {
	return func(_ context.Context, see func(node, resources string)) error {
		nodes.Glance(func(g *cache.Glance) {
			if g.Resources != nil {
				see(g.ID, *g.Resources)
			}
		})
		return nil
	}
}

// storedAgents reads what Redis knows of the agents.
func storedAgents(cells *cell.Set) eachAgent {
	return func(ctx context.Context, see func(node, resources string)) error {
		for _, c := range cells.All() {
			if err := c.Resources(ctx, see); err != nil {
				return err
			}
		}
		return nil
	}
}

// agentsSource returns what compares the agents' builds with the replicas'.
func agentsSource(p *peers, agents eachAgent) finding.Source {
	return finding.Source{Name: "agents", Look: func(ctx context.Context) ([]finding.Finding, error) {
		all, err := p.read(ctx)
		if err != nil {
			return nil, err
		}
		known, since := replicaBuilds(all)
		if len(known) == 0 || time.Since(since) <= p.limits.Upgrade {
			return nil, nil
		}
		other := make(map[string]build)
		err = agents(ctx, func(node, resources string) {
			var said struct {
				Build string `json:"build"`
			}
			if json.Unmarshal([]byte(resources), &said) != nil || said.Build == unreleased || known[said.Build] {
				return
			}
			if !plainBuild.MatchString(said.Build) {
				said.Build = "a build that cannot be read"
			}
			b := other[said.Build]
			if b.agents++; b.first == "" || node < b.first {
				b.first = node
			}
			other[said.Build] = b
		})
		return agentBuilds(other, slices.Sorted(maps.Keys(known)), since, p.limits.Upgrade), err
	}}
}

// unreleased is the build of programs that know none, such as tests.
const unreleased = "dev"

// plainBuild matches what can be printed as it is: agents may say anything.
var plainBuild = regexp.MustCompile(`^[\w.+-]{0,64}$`)

// build is what agents with a build of their own have in common.
type build struct {
	agents int
	first  string // the first of their names
}

// replicaBuilds returns the builds of the replicas that are no part of other programs, and since when
// no other one has started.
func replicaBuilds(all []history.ReplicaStatus) (known map[string]bool, since time.Time) {
	known = make(map[string]bool)
	for i := range all {
		if r := &all[i]; r.Build != "" && r.StartedMS != 0 && !r.Embedded {
			known[r.Build] = true
			if at := time.UnixMilli(r.StartedMS); at.After(since) {
				since = at
			}
		}
	}
	return known, since
}

// agentBuilds returns the finding about agents that run other builds than the replicas, for longer
// than an upgrade takes.
func agentBuilds(other map[string]build, known []string, since time.Time, limit time.Duration) []finding.Finding {
	if len(other) == 0 {
		return nil
	}
	f := finding.Finding{
		ID: "agents.builds", Severity: finding.Warning, SinceMS: since.UnixMilli(), Docs: "docs/install.md#upgrading",
		Next: "upgrade these agents, as docs/install.md says; programs with package worker are built anew",
	}
	count := 0
	for _, name := range slices.Sorted(maps.Keys(other)) {
		b := other[name]
		count += b.agents
		if name == "" {
			name = "an earlier build"
		}
		f.Names = append(f.Names, fmt.Sprintf("%s (%s, such as %s)", name, plural.Of(b.agents, "agent", "agents"), b.first))
	}
	f.Text = fmt.Sprintf("%s another build than the replicas (%s), which have run for more than %s",
		plural.Of(count, "agent runs", "agents run"), known[len(known)-1], config.FormatDuration(limit))
	return []finding.Finding{f}
}
