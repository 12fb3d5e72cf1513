package replica

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/namelist/own"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/tenant"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// idleSources returns the sources of findings of a replica that is not started, so that nothing but
// a look at them asks Redis.
func idleSources(t *testing.T, redis *redistest.Server) []finding.Source {
	t.Helper()
	cfg, log, reg := configured(t), zap.NewNop(), prometheus.NewRegistry()
	cfg.Redis.URL, cfg.Lists.Dir = redis.URL(), t.TempDir()
	r := New(cfg, log, reg)
	conn, err := r.connect(waittest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.close(context.Background()) })
	f, err := newFleet(cfg, conn, log, reg)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDispatcher(cfg, f, nil, tenant.NewMeter(), demand.NewMeter(), log, reg)
	if err != nil {
		t.Fatal(err)
	}
	env := newEnv(r)(cfg, f, d, own.New(cfg, log, reg), audit.New(audit.Config{}, f.cells.Runners()[0], log, nil), conn, log, reg)
	var parts feature.Parts
	for _, m := range Features() {
		parts.Group = append(parts.Group, m.New(env))
	}
	replicas := newPeers(cfg.Findings, history.New(), presence.NewStore(f.cells.Runners()[0]))
	return sources(cfg, conn, f, d, replicas, parts, nil, func() []expiring { return nil })
}

var calls = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+)`)

// commands returns how many commands a server has run, with the commands of scripts, and without
// those that open connections and load scripts.
func commands(t *testing.T, client rueidis.Client) (n int) {
	t.Helper()
	text, err := client.Do(waittest.Context(t), client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range calls.FindAllStringSubmatch(text, -1) {
		count, err := strconv.Atoi(match[2])
		if err != nil {
			t.Fatal(err)
		}
		if name := match[1]; !strings.HasPrefix(name, "client") && !strings.HasPrefix(name, "script") {
			n += count
		}
	}
	return n
}

// TestFindingsCost: sources that say they need no call make none. The others make few, and are few
// enough that each has its turn within the time that the console is promised, one every two
// seconds.
func TestFindingsCost(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.AppendOnly("everysec"))
	client := redis.Client(t)
	all, turns, total := idleSources(t, redis), 0, 0
	for i := range all {
		s := &all[i]
		look := func() int {
			before := commands(t, client)
			if _, err := s.Look(waittest.Context(t)); err != nil {
				t.Fatalf("%s: %v; want an answer", s.Name, err)
			}
			return commands(t, client) - before - 1 // its own INFO
		}
		look()                                    // opens connections and loads scripts
		n, most := min(look(), look(), look()), 4 // connections may have asked something meanwhile
		switch {
		case s.Memory:
			most = 0
		case s.Watched:
			most = 1
		default:
			turns, total = turns+1, total+n
		}
		if n > most {
			t.Errorf("a look at %s costs %d commands; want %d at most", s.Name, n, most)
		}
	}
	if all := time.Duration(turns) * 2 * time.Second; all >= findingsAge {
		t.Errorf("%d sources take %s to have their turns; want less than %s", turns, all, findingsAge)
	}
	if total > 15 {
		t.Errorf("a turn of all sources costs %d commands; want at most 15, one a second", total)
	}
}
