package replica

import (
	"cmp"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/process/version"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// presenceStore returns where the replicas of cfg report themselves.
func presenceStore(t *testing.T, cfg config.Replica) *presence.Store {
	t.Helper()
	layout := script.Layouts(cfg.Redis.KeyPrefix, cfg.Redis.Cells, false)[0]
	return presence.NewStore(script.NewRunner(script.Config{Layout: layout}, redistest.Shared(t).Client(t), zap.NewNop(), nil))
}

// TestReplicasBehind: a replica that stays at an older configuration than others for a minute is
// told until it follows, or is gone; one that goes on from version to version is not.
func TestReplicasBehind(t *testing.T) {
	t.Parallel()
	store, past := presenceStore(t, configured(t)), history.New()
	p, began := newPeers(config.DefaultReplica().Findings, past, store), time.Now()
	say := func(replica string, config uint64) {
		t.Helper()
		status := history.Status{Build: "v1", ConfigVersion: config}
		all, err := store.Present(waittest.Context(t), presence.Replica{Name: replica, Status: status.Encode()}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reports := make([]history.Report, len(all))
		for i := range all {
			reports[i] = history.Report{Replica: all[i].Name, AtMS: all[i].AtMS}
		}
		past.Observe(all[0].AtMS, reports)
	}
	look := func(after time.Duration, want string) {
		t.Helper()
		found, err := p.look(waittest.Context(t), began.Add(after))
		if got := said(found); err != nil || got != want {
			t.Errorf("after %s found %q, %v; want %q", after, got, err, want)
		}
		if want != "" && found[0].SinceMS != began.UnixMilli() {
			t.Errorf("since %d; want %d, when it was first behind", found[0].SinceMS, began.UnixMilli())
		}
	}
	say("stays", 3)
	say("goes on", 3)
	say("leads", 4)
	look(0, "")
	say("leads", 5)
	say("goes on", 4)
	look(time.Minute, "")
	const stays = "warning replicas.config: 1 replica follows an older configuration of pools than version 5, which another one follows"
	look(time.Minute+time.Millisecond, stays)
	say("goes on", 5)
	look(2*time.Minute, stays)
	say("stays", 5)
	look(2*time.Minute, "")
	say("stays", 4)
	look(3*time.Minute, "")
}

// TestReplicasOfOtherBuilds: a replica tells that others have run another build for more than an
// hour, until they are gone.
func TestReplicasOfOtherBuilds(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	cfg := configured(t)
	store := presenceStore(t, cfg)
	say := func(name, build string, ago time.Duration) {
		t.Helper()
		figures := history.Figures{StartMS: time.Now().Add(-ago).UnixMilli(), Keeps: true}
		status := history.Status{Build: cmp.Or(build, version.String())}
		own := presence.Replica{Name: name, Figures: figures.Encode(), Status: status.Encode()}
		if _, err := store.Present(waittest.Context(t), own, limit); err != nil {
			t.Fatal(err)
		}
	}
	r := began(t, cfg)
	untilFound(t, r, "replicas.builds", func(f *finding.Finding) bool {
		say("old", "v0", 3*time.Hour)
		say("new", "", 2*time.Hour)
		return f != nil && len(f.Names) == 2 && f.Names[0] == "v0 (1 replica, such as old)" &&
			f.Names[1] == version.String()+" (2 replicas, such as new)" && time.Since(time.UnixMilli(f.SinceMS)) < 3*time.Hour
	})
	if err := store.Leave(waittest.Context(t), "old", limit); err != nil {
		t.Fatal(err)
	}
	untilFound(t, r, "replicas.builds", gone)
}

// TestBuilds: an upgrade may take an hour from the start of the first replica with another build
// on.
func TestBuilds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one := func(name, build string, ago time.Duration) history.ReplicaStatus {
		return history.ReplicaStatus{Name: name, StartedMS: now.Add(-ago).UnixMilli(), Status: history.Status{Build: build}}
	}
	embedded := one("embedded", "v0", 8*time.Hour)
	embedded.Embedded = true
	for _, c := range []struct {
		what string
		all  []history.ReplicaStatus
		want bool
	}{
		{"none", nil, false},
		{"one build", []history.ReplicaStatus{one("a", "v1", 3*time.Hour), one("b", "v1", 2*time.Hour)}, false},
		{"an upgrade that has begun", []history.ReplicaStatus{one("a", "v1", 3*time.Hour), one("b", "v2", time.Minute)}, false},
		{"an upgrade that stays", []history.ReplicaStatus{
			one("a", "v2", time.Minute), one("b", "v1", 3*time.Hour), one("c", "v2", 2*time.Hour),
		}, true},
		{"another program", []history.ReplicaStatus{one("a", "v1", 3*time.Hour), embedded}, false},
	} {
		if got := said(builds(c.all, now, time.Hour)); got != "" != c.want {
			t.Errorf("%s: found %q; want a finding: %v", c.what, got, c.want)
		}
	}
}
