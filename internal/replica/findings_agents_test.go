package replica

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestAgentsBehind: agents of another build than all replicas are told once the youngest replica has
// run for longer than an upgrade takes.
func TestAgentsBehind(t *testing.T) {
	t.Parallel()
	limits := config.DefaultReplica().Findings
	began := time.Now().Add(-2 * limits.Upgrade)
	replica := func(build string, embedded bool, started time.Time) history.ReplicaStatus {
		s := history.ReplicaStatus{StartedMS: started.UnixMilli()}
		s.Build, s.Embedded = build, embedded
		return s
	}
	old, current := replica("v1", false, began), replica("v2", false, began.Add(time.Minute))
	agents := map[string]string{
		"n1": `{"build": "v2"}`, "n2": `{"build": "v1"}`, "n3": `{"build": "v0"}`, "n4": `{"cpu_usage": 1}`, "n5": `no JSON`,
		"n6": `{"build": "dev"}`,
	}
	for name, test := range map[string]struct {
		replicas []history.ReplicaStatus
		want     string
	}{
		"no replica":       {nil, ""},
		"one build":        {[]history.ReplicaStatus{current}, "warning agents.builds: 3 agents run another build than the replicas (v2), which have run for more than 1h"},
		"two builds":       {[]history.ReplicaStatus{old, current}, "warning agents.builds: 2 agents run another build than the replicas (v2), which have run for more than 1h"},
		"upgraded lately":  {[]history.ReplicaStatus{old, replica("v2", false, time.Now())}, ""},
		"embedded lately":  {[]history.ReplicaStatus{current, replica("v3", true, time.Now())}, "warning agents.builds: 3 agents run another build than the replicas (v2), which have run for more than 1h"},
		"only embedded":    {[]history.ReplicaStatus{replica("v2", true, began)}, ""},
		"says nothing yet": {[]history.ReplicaStatus{replica("", false, began)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &peers{limits: limits, read: func(context.Context) ([]history.ReplicaStatus, error) { return test.replicas, nil }}
			found, err := agentsSource(p, func(_ context.Context, see func(node, resources string)) error {
				for node, said := range agents {
					see(node, said)
				}
				return nil
			}).Look(waittest.Context(t))
			if got := said(found); err != nil || got != test.want {
				t.Errorf("found %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// TestDoctorOfAgents: a doctor with the rights of its role, and a replica that is asked for one, find
// an agent of an earlier release.
func TestDoctorOfAgents(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.AppendOnly("everysec"), redistest.Args("--maxmemory", "1gb", "--tcp-keepalive", "60"))
	cfg := configured(t)
	cfg.Redis.URL, cfg.Findings.Upgrade = redis.AdminURL(), 0
	cells := script.Layouts(cfg.Redis.KeyPrefix, 1, false)
	r := began(t, cfg)
	c, err := cell.New(cell.Config{Layout: cell.Layout(cells[0]), Cells: 1, Scripts: script.Keep}, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Register(waittest.Context(t), freeslot.Node{ID: "n1", MaxConcurrency: 1}, "e1"); err != nil {
		t.Fatal(err)
	}
	beat := cell.Heartbeat{Node: "n1", Epoch: "e1", Resources: json.RawMessage(`{"build":"v0"}`)}
	if _, err := c.Heartbeat(waittest.Context(t), beat); err != nil {
		t.Fatal(err)
	}
	cfg.Redis.Username, cfg.Redis.PasswordFile = "doctor", doctorsPassword(t, redis, cells)
	waittest.Until(t, "a doctor to find the agent", func() bool {
		ids, _ := examined(t, cfg)
		return slices.Equal(ids, []string{"agents.builds"})
	})
	waittest.Until(t, "a replica to find the agent", func() bool {
		return strings.Contains(sendBody(t, r, http.MethodGet, "/v1/findings?doctor=true", "", "").text, `"v0 (1 agent, such as n1)"`)
	})
}
