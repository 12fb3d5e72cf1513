package acl

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func user(t *testing.T, role script.Role, node string, layouts ...script.Layout) User {
	t.Helper()
	rights, err := Of(role, node, layouts, cell.Access)
	if err != nil {
		t.Fatal(err)
	}
	return User{Name: string(role), Rights: rights, Password: "secret"}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	return waittest.Context(t)
}

func apply(t *testing.T, url string, users ...User) []Applied {
	t.Helper()
	topology, err := redisclient.Inspect(deadline(t), redisclient.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	done, err := Apply(deadline(t), topology, users)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func as(t *testing.T, redis *redistest.Target, name string) rueidis.Client {
	t.Helper()
	return redis.Client(t, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.ClientSetInfo = name, "secret", rueidis.DisableClientSetInfo
	})
}

// TestAgentOfOneNode: what the user of one node's agent may and may not do.
func TestAgentOfOneNode(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	l := script.Layout{Prefix: "scheduler"}
	apply(t, redis.URL(), user(t, script.RoleAgent, "gpu-1", l), user(t, script.RoleReplica, script.AnyNode, l), user(t, script.RoleOperator, script.AnyNode, l), user(t, script.RoleImporter, script.AnyNode, l))
	open := func(role script.Role, scripts script.Missing) *cell.Cell {
		c, err := cell.New(cell.Config{Layout: cell.Layout(l), CallTimeout: time.Minute, Scripts: scripts}, as(t, redis.Target, string(role)), zap.NewNop(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	replica, agent, importer := open(script.RoleReplica, script.Keep), open(script.RoleAgent, script.Await), open(script.RoleImporter, script.Send)
	if _, err := replica.Check(deadline(t)); err != nil {
		t.Fatal(err)
	}
	node := func(id string) freeslot.Node { return freeslot.Node{ID: id, MaxConcurrency: 1, Pools: []string{"p"}} }
	if _, err := agent.Register(deadline(t), node("gpu-1"), cell.NewEpoch()); err != nil {
		t.Fatal(err)
	}
	if _, err := importer.Register(deadline(t), node("imported"), cell.ImportEpoch); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"gpu-2", "gpu-10"} {
		if _, err := agent.Register(deadline(t), node(id), cell.NewEpoch()); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("the agent of gpu-1 as %s: %v", id, err)
		}
	}
	own, all := as(t, redis.Target, "agent"), as(t, redis.Target, "operator")
	for _, test := range []struct {
		client  rueidis.Client
		allowed bool
		args    string
	}{
		{own, true, "HGET scheduler:nodes:gpu-1 epoch"},
		{own, true, "HSET scheduler:nodes:gpu-1 note direct"}, // what scripts call, the agent may call
		{own, false, "HGET scheduler:nodes:gpu-2 epoch"},
		{own, false, "DEL scheduler:slots:gpu-10"},
		{own, false, "GET other:version:schema"},
		{own, false, "HGET scheduler:cron x"},
		{own, false, "EVAL return 0"},
		{own, false, "SCRIPT LOAD return"},
		{own, false, "SCRIPT FLUSH"},
		{own, false, "KEYS *"},
		{own, false, "SCAN 0"},
		{own, false, "CONFIG GET *"},
		{own, false, "ACL LIST"},
		{own, false, "CLIENT TRACKING ON BCAST"},
		{own, false, "FLUSHALL"},
		{own, true, "PUBLISH scheduler:events:node_update x"},
		{own, false, "PUBLISH scheduler:events:config_update x"},
		{all, false, "HSET scheduler:nodes:gpu-1 note direct"},
		{all, false, "EVAL return 0"},
		{all, false, "PUBLISH scheduler:events:node_update x"},
		{all, true, "ZRANGE scheduler:index:heartbeats 0 -1"},
		{all, true, "SCAN 0"},
		{all, false, "KEYS *"},
		{all, false, "GET other"},
		{all, false, "CONFIG GET *"},
		{all, false, "FLUSHALL"},
	} {
		args := strings.Fields(test.args)
		if args[0] == "EVAL" {
			args = []string{"EVAL", "return 1", "0"}
		}
		err := test.client.Do(deadline(t), test.client.B().Arbitrary(args...).Build()).Error()
		denied := err != nil && strings.Contains(err.Error(), "NOPERM")
		if denied == test.allowed {
			t.Errorf("%s: allowed is %v, want %v: %v", test.args, !denied, test.allowed, err)
		}
	}
}

// TestApplyEverywhere: servers do not tell each other of users.
func TestApplyEverywhere(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	done := apply(t, redis.URL(), user(t, script.RoleAgent, script.AnyNode, script.Layout{Prefix: "scheduler"}))
	if len(done) != 2 || done[0].Saved {
		t.Errorf("%+v", done)
	}
	for _, target := range []*redistest.Target{redis.Target, redis.Replicas[0].Target} {
		c := as(t, target, "agent")
		if err := c.Do(deadline(t), c.B().Ping().Build()).Error(); err != nil {
			t.Error(err)
		}
	}
	layouts := script.Layouts("scheduler", 3, true)
	if done := apply(t, redistest.Cluster(t).URL(), user(t, script.RoleAgent, script.AnyNode, layouts...)); len(done) != 3 {
		t.Errorf("%+v; want len(done) == 3", done)
	}
}

// TestAdd: what a release with other scripts gives beforehand takes nothing away, and what follows the upgrade does.
func TestAdd(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	l := script.Layout{Prefix: "scheduler"}
	now := user(t, script.RoleAgent, "n", l)
	old := now
	old.Rights.Scripts = []string{strings.Repeat("0", 40)}
	hashes := func() []string {
		t.Helper()
		c := redis.Client(t)
		said, err := c.Do(deadline(t), c.B().AclGetuser().Username("agent").Build()).AsMap()
		if err != nil {
			t.Fatal(err)
		}
		commands := said["commands"]
		text, _ := commands.ToString()
		var found []string
		for _, rule := range strings.Fields(text) {
			if sha, ok := strings.CutPrefix(rule, "+evalsha|"); ok {
				found = append(found, sha)
			}
		}
		slices.Sort(found)
		return found
	}
	both := slices.Sorted(slices.Values(append(slices.Clone(now.Rights.Scripts), old.Rights.Scripts...)))
	add, keep := now, now
	add.Add, add.Password = true, "next"
	keep.Password = ""
	for _, step := range []struct {
		u    User
		want []string
	}{{old, old.Rights.Scripts}, {add, both}, {keep, now.Rights.Scripts}} {
		apply(t, redis.URL(), step.u)
		if got := hashes(); !slices.Equal(got, step.want) {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
	for _, password := range []string{"secret", "next"} { // both, until one of them is set alone
		c, err := redisclient.Agent(redisclient.Config{URL: strings.Replace(redis.URL(), "redis://", "redis://agent:"+password+"@", 1)})
		if err != nil {
			t.Errorf("%s: %v; want no error", password, err)
			continue
		}
		c.Close()
	}
	if strings.Contains(now.Command()+now.Line(), "secret") {
		t.Error("the password is shown")
	}
}

func TestUnknownRole(t *testing.T) {
	t.Parallel()
	if _, err := Of("god", script.AnyNode, nil); err == nil {
		t.Error(err)
	}
}

// TestBase: what roles may call besides their features' commands is what connections and package script call.
func TestBase(t *testing.T) {
	t.Parallel()
	// What the client library does: on new connections, and with subscriptions that are given back.
	called := map[string]bool{"client|tracking": true, "unsubscribe": true, "sunsubscribe": true, "punsubscribe": true, "discard": true}
	for _, name := range connecting {
		called[name] = true
	}
	for _, folder := range []string{"../../script", "../../events", "../client"} {
		maps.Copy(called, scripttest.BuiltCommands(t, folder))
	}
	for name := range called {
		if !slices.Contains(base[script.RoleReplica], name) {
			t.Errorf("%s is called, and no replica may", name)
		}
	}
	for role, names := range base {
		for _, name := range names {
			if !called[name] {
				t.Errorf("%s may call %s, and nothing does", role, name)
			}
		}
	}
}
