package client

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// nowhere is an address that refuses connections.
const nowhere = "127.0.0.1:1"

func inspect(t *testing.T, c Config) *Topology {
	t.Helper()
	topology, err := Inspect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func TestInspect(t *testing.T) {
	t.Parallel()
	single, cluster := redistest.Shared(t), redistest.Cluster(t)
	for name, c := range map[string]struct {
		cfg     Config
		cluster bool
		servers int
	}{
		"single":                          {Config{URL: single.URL()}, false, 1},
		"single of a list":                {Config{URLs: []string{single.URL()}}, false, 1},
		"cluster":                         {Config{URL: cluster.URL()}, true, 1},
		"cluster by one node":             {Config{URL: "redis://" + cluster.Addrs()[1]}, true, 1},
		"cluster, the first node is down": {Config{URL: "redis://" + nowhere + "?addr=" + cluster.Addrs()[2]}, true, 1},
		"several, none of them asked":     {Config{URLs: []string{"redis://" + nowhere, single.URL()}}, false, 2},
		"sentinels, not asked":            {Config{URL: "redis://" + nowhere + "?master_set=m"}, false, 1},
	} {
		topology := inspect(t, c.cfg)
		if topology.Cluster != c.cluster || topology.Servers != c.servers || topology.Config(0).Cluster != c.cluster {
			t.Errorf("%s: cluster %v, %d servers", name, topology.Cluster, topology.Servers)
		}
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"nobody there":            {Config{URL: "redis://" + nowhere}, "connection refused"},
		"no URL":                  {Config{}, "redis url"},
		"one of several no URL":   {Config{URLs: []string{single.URL(), "x"}}, "redis url"},
		"database of a cluster":   {Config{URL: "redis://" + cluster.Addrs()[0] + "/3"}, "names database 3, and a cluster has only database 0"},
		"wrong number of clients": {Config{URL: single.URL(), Connections: 3}, "expected 1, 2, 4 or 8"},
	} {
		if _, err := Inspect(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error, strings.Contains(err.Error(), c.want)", name, err)
		}
	}
}

// TestInspectWithoutInfo: a server that refuses to answer counts as standalone.
func TestInspectWithoutInfo(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	if err := admin.Do(t.Context(), admin.B().Arbitrary("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-info").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if topology := inspect(t, Config{URL: strings.Replace(redis.URL(), "redis://", "redis://u:p@", 1)}); topology.Cluster {
		t.Errorf("%+v", topology)
	}
}

func TestServerOfCell(t *testing.T) {
	t.Parallel()
	topology := inspect(t, Config{URLs: []string{"redis://a", "redis://b", "redis://c"}, Name: "n"})
	for cell, want := range []int{0, 1, 2, 0, 1} {
		if got := topology.Server(cell); got != want {
			t.Errorf("cell %d is on server %d", cell, got)
		}
	}
	if c := topology.Config(1); c.URL != "redis://b" || c.URLs != nil || c.Name != "n" {
		t.Errorf(`%+v; want c.URL == "redis://b", c.URLs == nil, c.Name == "n"`, c)
	}
}

func TestOpenCluster(t *testing.T) {
	t.Parallel()
	redis := redistest.Cluster(t)
	for _, role := range []Role{Commands, Subscriber} {
		clients, err := inspect(t, Config{URL: "redis://" + redis.Addrs()[0]}).Open(role)
		if err != nil {
			t.Fatal(err)
		}
		if clients.For(0) != clients.For(7) || len(clients.All()) != 1 || clients.For(0).Mode() != rueidis.ClientModeCluster {
			t.Error("not one client of a cluster")
		}
		for _, key := range []string{"{a}", "{b}", "{c}", "{d}"} {
			c := clients.For(0)
			if err := c.Do(deadline(t), c.B().Exists().Key(redis.Prefix(t)+key).Build()).Error(); err != nil {
				t.Errorf("%s: %v; want no error", key, err)
			}
		}
		clients.Close()
	}
}

// TestOpenWithOneServerDown: commands to the missing server fail at once, and succeed as soon as it
// is up.
func TestOpenWithOneServerDown(t *testing.T) {
	t.Parallel()
	up, down := redistest.New(t), redistest.New(t)
	down.Kill()
	clients, err := inspect(t, Config{URLs: []string{up.URL(), down.URL()}, Name: "late"}).Open(Commands)
	if err != nil {
		t.Fatal(err)
	}
	defer clients.Close()
	set := func(cell int) error {
		c := clients.For(cell)
		return c.Do(deadline(t), c.B().Set().Key("key").Value("v").Build()).Error()
	}
	if err := set(0); err != nil {
		t.Error(err)
	}
	if err := set(1); err == nil { // at once: its context goes on
		t.Error("no error of a server that is down")
	}
	late := clients.For(3)
	if late.Mode() != rueidis.ClientModeStandalone || len(late.Nodes()) != 1 || late.Nodes()[down.Addrs()[0]] == nil {
		t.Errorf("mode %v, nodes %v", late.Mode(), late.Nodes())
	}
	for name, call := range map[string]func() error{
		"multi": func() error { return late.DoMulti(deadline(t), late.B().Get().Key("k").Build())[0].Error() },
		"receive": func() error {
			return late.Receive(deadline(t), late.B().Subscribe().Channel("c").Build(), func(rueidis.PubSubMessage) {})
		},
		"dedicated": func() error {
			return late.Dedicated(func(c rueidis.DedicatedClient) error { return c.Do(deadline(t), c.B().Ping().Build()).Error() })
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	down.Restart()
	waittest.Until(t, "the server that is up to be used", func() bool { return set(1) == nil })
	if lines := listed(t, down.Client(t), "late"); len(lines) != 1 {
		t.Errorf("connections %q", lines)
	}
}

func TestOpenWithAllServersDown(t *testing.T) {
	t.Parallel()
	topology := inspect(t, Config{URLs: []string{"redis://" + nowhere, "redis://127.0.0.1:2"}})
	if clients, err := topology.Open(Commands); err == nil {
		clients.Close()
		t.Error("no error")
	}
}

// TestCloseBeforeItIsUp: nothing is left behind, which goleak checks at the end.
func TestCloseBeforeItIsUp(t *testing.T) {
	t.Parallel()
	clients, err := inspect(t, Config{URLs: []string{redistest.Shared(t).URL(), "redis://" + nowhere}}).Open(Subscriber)
	if err != nil {
		t.Fatal(err)
	}
	clients.Close()
	clients.Close()
}

// TestAgentOnCluster: an agent connects to the master of its slot and to no other server.
func TestAgentOnCluster(t *testing.T) {
	t.Parallel()
	redis := redistest.Cluster(t)
	for i, tag := range []string{"lp0", "fjl", "nrv"} { // slots of the first, second and third master
		name := "agent-" + tag
		topology := inspect(t, Config{URL: redis.URL(), Name: name})
		slot := []int{4096, 8192, 12288}[i]
		client, err := topology.Agent(t.Context(), 0, slot)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		for range 100 {
			if err := client.Do(deadline(t), client.B().Incr().Key("{"+tag+"}").Build()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		for j, addr := range redis.Addrs() {
			want := 0
			if i == j {
				want = 1
			}
			// The server may not have noticed yet that the connection of the first question is
			// closed.
			admin := redistest.At("node", false, addr).Client(t)
			got := 0
			waittest.Until(t, fmt.Sprintf("master %d to have %d connections for %s", j, want, tag), func() bool {
				got = len(listed(t, admin, name))
				return got == want
			}, func() any { return got })
		}
	}
	if _, err := inspect(t, Config{URL: redis.URL()}).Agent(t.Context(), 0, 16384); err == nil || !strings.Contains(err.Error(), "no master owns hash slot 16384") {
		t.Errorf("a slot that there is not: %v", err)
	}
}
