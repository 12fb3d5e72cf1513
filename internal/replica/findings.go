package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/plural"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// deadSample is how many dead jobs a look reads to name the causes. Looks come often while somebody
// watches, and most often when thousands of jobs have died.
const deadSample = 200

// sources returns all sources of findings of a replica.
func sources(
	cfg config.Replica, conn *connections, f *fleet, d *dispatch.Dispatcher, replicas *peers, parts feature.Parts,
	checks []api.Check, tokens func() []expiring,
	served ...*listener.TLS,
) []finding.Source {
	all := []finding.Source{
		{Name: "replica", Memory: true, Look: func(context.Context) ([]finding.Finding, error) {
			return append(unready(checks), certificates(cfg.Findings.Expiry, served)...), nil
		}},
		{Name: "nodes", Memory: true, Look: func(context.Context) ([]finding.Finding, error) {
			return nodesNow(f.cache, d.ReapingPaused(), cfg.Findings.Flapping), nil
		}},
		{Name: "memory", Memory: true, Look: func(context.Context) ([]finding.Finding, error) {
			return full(redisServers(cfg, conn.topology.Cluster, d.Loads()), cfg.Findings.RedisMemory), nil
		}},
		{Name: "replicas", Watched: true, Look: func(ctx context.Context) ([]finding.Finding, error) {
			return replicas.look(ctx, time.Now())
		}},
		{Name: "tokens", Look: func(context.Context) ([]finding.Finding, error) {
			return runOut(tokens(), time.Now(), cfg.Findings.Expiry), nil
		}},
		{Name: "queues", Look: func(ctx context.Context) ([]finding.Finding, error) {
			queues, unreachable, err := d.Queues(ctx)
			if err == nil && len(unreachable) > 0 {
				err = fmt.Errorf("cells %v do not answer", unreachable)
			}
			return waiting(queues, time.Now().Add(-cfg.Findings.OldestWait)), err
		}},
		{Name: "jobs", Look: func(ctx context.Context) ([]finding.Finding, error) {
			window := cfg.Findings.DeadJobs
			dead, err := f.cells.NewestDead(ctx, cell.JobFilter{FromMS: time.Now().Add(-window).UnixMilli()},
				[]cell.DeadKey{cell.DeadByService, cell.DeadByCode}, deadSample)
			return died(&dead, window), err
		}},
		{Name: "redis", Look: func(ctx context.Context) ([]finding.Finding, error) {
			return redisNow(ctx, &cfg.Findings, f.cells, conn.topology)
		}},
	}
	for _, p := range parts.All() {
		all = append(all, p.Findings...)
	}
	return all
}

// unready turns checks of readiness that fail, or hold only in part, into findings.
func unready(checks []api.Check) (found []finding.Finding) {
	for _, c := range checks {
		ok, detail := c.Ready()
		if ok && detail == "" {
			continue
		}
		severity := finding.Warning
		if !ok {
			severity = finding.Critical
		}
		found = append(found, finding.Finding{
			ID: "replica." + c.Name, Severity: severity, Text: strings.TrimPrefix(detail, "degraded: "),
			Next: "mend the cause that is named here; the replica's log has more, and /readyz shows when it is over",
		})
	}
	return found
}

// certificates returns the certificates that are over, or will be within limit.
func certificates(limit time.Duration, served []*listener.TLS) (found []finding.Finding) {
	for _, t := range served {
		if expiry, ok := t.Expiry(); ok {
			found = append(found, certificate(t.Setting(), expiry, limit)...)
		}
	}
	return found
}

// certificate returns the finding about a certificate that ends within limit, or has ended.
func certificate(where string, expiry time.Time, limit time.Duration) []finding.Finding {
	if time.Until(expiry) > limit {
		return nil
	}
	f := finding.Finding{
		ID: "certificate." + strings.ReplaceAll(where, " ", "_"), Severity: finding.Warning,
		Text: "the certificate of " + where + " expires at " + expiry.UTC().Format(time.RFC3339),
		Next: "replace its files; new ones are read at the next connection",
	}
	if time.Until(expiry) <= 0 {
		f.Severity, f.Text = finding.Critical, strings.Replace(f.Text, "expires", "expired", 1)
	}
	return []finding.Finding{f}
}

func nodesNow(nodes *cache.Cache, reapingPaused bool, flapping int) (found []finding.Finding) {
	health := nodes.Health()
	if health.Synced && !health.Stale && health.Nodes == 0 {
		return []finding.Finding{{
			ID: "nodes.none", Severity: finding.Critical, Text: "no node is registered, so no job can run",
			Next: "start an agent: nodeagent, or a program with package worker",
		}}
	}
	if !health.Stale { // otherwise nodes seem silent because the replica hears nothing
		found = append(found, silent(nodes.Silent(nodes.SilenceLimit()), reapingPaused)...)
	}
	return append(found, lost(nodes.Lost(), flapping)...)
}

// died returns the finding about jobs that died in the last time, with the most frequent errors.
func died(dead *cell.DeadLetters, window time.Duration) []finding.Finding {
	if dead.Total == 0 {
		return nil
	}
	const most = 3
	causes := make([]string, 0, most)
	for _, g := range dead.Groups[:min(len(dead.Groups), most)] {
		causes = append(causes, fmt.Sprintf("%d of %s with %s", g.Jobs, g.Service, cmp.Or(g.Code, "no error")))
	}
	last := config.FormatDuration(window)
	text := plural.Of(dead.Total, "job", "jobs") + " died in the last " + last
	switch {
	case len(causes) > 0 && dead.LookedAt < dead.Total:
		text += fmt.Sprintf("; of the last %d: %s", dead.LookedAt, strings.Join(causes, ", "))
	case len(causes) > 0:
		text += ": " + strings.Join(causes, ", ")
	}
	return []finding.Finding{{
		ID: "jobs.dead", Severity: finding.Warning, Text: text,
		Next: "schedctl dead-letters --since " + last +
			"; mend the cause, then schedctl requeue --state dead --code CODE --drop",
	}}
}

func silent(nodes []cache.SilentNode, reapingPaused bool) []finding.Finding {
	if len(nodes) == 0 {
		return nil
	}
	f := finding.Finding{
		ID: "nodes.silent", Severity: finding.Warning,
		Text: plural.Of(len(nodes), "node is", "nodes are") + " silent and get no jobs",
		Next: "look at their agents and at the network between them and Redis, or the gateway",
	}
	if reapingPaused {
		f.Severity = finding.Critical
		f.Text += "; too many at once, so they keep their jobs for now"
	}
	for _, n := range nodes[:min(len(nodes), finding.MaxNames)] {
		f.Names = append(f.Names, n.ID)
	}
	return []finding.Finding{f}
}

// lost returns the nodes that fell silent within the last hour and stayed away, and the nodes that
// did so this many times or more.
func lost(nodes []cache.LostNode, flapping int) []finding.Finding {
	away := finding.Finding{
		ID: "nodes.lost", Severity: finding.Warning,
		Next: "look at their agents; schedctl nodes NODE shows one that is back",
	}
	flaps := finding.Finding{
		ID: "nodes.flapping", Severity: finding.Warning,
		Next: "schedctl nodes drain NODE keeps jobs away while you look at its agent's log",
	}
	for _, n := range nodes {
		f := &away
		switch {
		case len(n.At) >= flapping:
			f = &flaps
		case n.Back:
			continue
		}
		f.Names = append(f.Names, n.ID)
		if at := n.At[len(n.At)-1].UnixMilli(); f.SinceMS == 0 || at < f.SinceMS {
			f.SinceMS = at
		}
	}
	away.Text = plural.Of(len(away.Names), "node", "nodes") +
		" fell silent within the last hour and did not come back"
	flaps.Text = plural.Of(len(flaps.Names), "node", "nodes") +
		fmt.Sprintf(" fell silent %d times or more within the last hour", flapping)
	return slices.DeleteFunc([]finding.Finding{away, flaps}, func(f finding.Finding) bool { return len(f.Names) == 0 })
}

// waiting returns the queues that nothing serves, and those whose oldest job was submitted before
// earliest.
func waiting(queues []dispatch.Queue, earliest time.Time) []finding.Finding {
	unserved := finding.Finding{
		ID: "queues.unserved", Severity: finding.Critical,
		Next: "schedctl explain --job JOB shows what is missing; start a node that offers it, or cancel the jobs",
	}
	paused := finding.Finding{
		ID: "queues.paused", Severity: finding.Warning,
		Next: "schedctl queues shows what is paused; schedctl resume ends a pause",
	}
	late := finding.Finding{
		ID: "queues.late", Severity: finding.Warning,
		Next: "schedctl explain --job JOB shows what it waits for; add nodes, or slots to them",
	}
	jobs := make(map[*finding.Finding]int)
	for i := range queues {
		q, f := &queues[i], &late
		switch {
		case q.Paused():
			f = &paused
		case q.Fits == 0 && !q.Unreadable && len(q.Expected) == 0:
			f = &unserved
		case q.OldestMS >= earliest.UnixMilli():
			continue
		}
		jobs[f] += q.Waiting
		f.Names = append(f.Names, cmp.Or(q.Service, q.ID)+" (job "+q.First+")")
		if f.SinceMS == 0 || q.OldestMS < f.SinceMS {
			f.SinceMS = q.OldestMS
		}
	}
	say := func(f *finding.Finding, why string) {
		f.Text = plural.Of(jobs[f], "job waits", "jobs wait") + ", and " + why
	}
	say(&unserved, "no node fits")
	say(&paused, "none begins because something is paused")
	say(&late, "the oldest has waited for "+time.Since(time.UnixMilli(late.SinceMS)).Round(time.Second).String())
	all := []finding.Finding{unserved, paused, late}
	return slices.DeleteFunc(all, func(f finding.Finding) bool { return len(f.Names) == 0 })
}

// redisNow returns what is wrong with the settings of Redis' servers, and with their replicas.
func redisNow(
	ctx context.Context, limits *config.Findings, cells *cell.Set, topology *redisclient.Topology,
) ([]finding.Finding, error) {
	found, err := serverSettings(ctx, cells, topology.Servers)
	if err != nil {
		return nil, err
	}
	masters := topology.Servers
	if topology.Cluster {
		masters = cells.Len() // at most; which cells share one is not known
	}
	behind, err := lagging(ctx, cells, masters, limits.RedisLag)
	return append(found, behind...), err
}

// serverSettings returns what is wrong with the settings of Redis' servers.
func serverSettings(ctx context.Context, cells *cell.Set, servers int) (found []finding.Finding, err error) {
	for i := range min(servers, cells.Len()) {
		texts, err := cells.At(i).CheckServers(ctx)
		severity := finding.Warning
		if cell.IsRefusal(err) {
			texts, severity, err = []string{err.Error()}, finding.Critical, nil
		}
		if err != nil {
			return nil, err
		}
		for j, text := range texts[:min(len(texts), finding.MaxNames)] {
			found = append(found, finding.Finding{
				ID: fmt.Sprintf("redis.settings.%d.%d", i, j), Severity: severity, Text: text,
				Next: "change the setting, in redis.conf too; replicas see that by themselves",
			})
		}
	}
	return found, nil
}
