package autoscale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, Access, audit.Access) }

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}

func TestKeyNames(t *testing.T) {
	t.Parallel()
	scripttest.CheckKeys(t, func(l script.Layout) keys { return keysOf(l, "gpu") })
}

// fleet is what the demand says of the pool gpu.
type fleet struct {
	picture atomic.Pointer[demand.DemandList]
}

// say sets the pool; wanted is -1 for none.
func (f *fleet) say(wanted, nodes, busy int) {
	p := demand.PoolDemand{Pool: "gpu", Nodes: nodes, BusyNodes: busy, TargetWaitMS: 1000}
	p.WantedSlots = max(wanted, 0)
	if wanted >= 0 {
		p.NodesWanted = &wanted
	}
	f.picture.Store(&demand.DemandList{Pools: []demand.PoolDemand{{Pool: "cpu"}, p}, AtMS: 1})
}

// rig is a scaler whose command adds what it is told to a file, and what it logged.
type rig struct {
	*scripttest.Rig
	*pool
	cfg   Config
	fleet fleet
	file  string
	logs  *observer.ObservedLogs
}

// newRig makes a scaler whose command is a program for sh with the arguments pool and nodes.
func newRig(t *testing.T, r *scripttest.Rig, program string) *rig {
	core, logs := observer.New(zap.InfoLevel)
	g := &rig{Rig: r, file: filepath.Join(t.TempDir(), "told"), logs: logs}
	g.fleet.say(-1, 0, 0)
	g.cfg = Config{
		Argv: []string{"sh", "-c", program, "sh", "{pool}", "{nodes}"}, Env: []string{"PATH=" + os.Getenv("PATH"), "FILE=" + g.file},
		Pools: []string{"gpu"}, MaxNodes: 10, Silent: func() bool { return false }, Cooldown: time.Hour, Timeout: time.Minute, Replica: "a",
		Demand: g.fleet.picture.Load, Audit: audit.New(audit.Config{}, r.Runner, zap.NewNop(), nil), Log: zap.New(core),
	}
	g.pool = g.scaler(t)
	return g
}

// scaler makes another scaler of the same pool.
func (g *rig) scaler(t *testing.T) *pool {
	s := New(g.cfg, g.Runner)
	t.Cleanup(func() {
		if err := s.Stop(waittest.Context(t)); err != nil {
			t.Errorf("stop: %v; want nil", err)
		}
	})
	return s.all[0]
}

const tell = `echo "$1 $2" >>"$FILE"`

// expect compares what the command was told until now.
func (g *rig) expect(t *testing.T, when string, lines ...string) {
	t.Helper()
	data, err := os.ReadFile(g.file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if got := strings.Fields(strings.ReplaceAll(string(data), "gpu ", "")); strings.Join(got, " ") != strings.Join(lines, " ") {
		t.Errorf("%s: the command was told %q; want %q", when, got, lines)
	}
}

// cool ends the cool-down.
func (g *rig) cool() { g.Do("DEL", g.keys.turn) }

// TestOneReplicaRuns: of several replicas one runs the command for a need, no sooner than the
// cool-down, and again until the nodes are there.
func TestOneReplicaRuns(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, tell)
		g.look()
		g.expect(t, "without a proposal")
		g.fleet.say(3, 1, 0)
		var all sync.WaitGroup
		for range 8 {
			s := g.scaler(t)
			all.Go(func() { s.look() })
		}
		all.Wait()
		g.expect(t, "at eight replicas", "3")
		if left := g.Int("PTTL", g.keys.turn); left <= 0 || left > g.cfg.Cooldown.Milliseconds() {
			t.Errorf("the turn ends in %d ms; want at most the cool-down", left)
		}
		g.fleet.say(5, 1, 0)
		g.look()
		g.expect(t, "within the cool-down", "3")
		g.cool()
		g.look()
		g.expect(t, "after the cool-down", "3", "5")
		g.cool()
		g.look()
		g.expect(t, "while nodes still start", "3", "5", "5")
		g.fleet.say(5, 5, 0)
		g.cool()
		g.look()
		g.expect(t, "with all nodes there", "3", "5", "5")
		if g.Exists(g.keys.turn) {
			t.Error("a replica took the turn for nothing")
		}
		g.fleet.say(2, 5, 0)
		g.look()
		g.expect(t, "with a smaller need", "3", "5", "5", "2")
		if n := g.logs.FilterMessage("autoscale.ran").Len(); n != 4 {
			t.Errorf("%d runs are logged; want 4", n)
		}
		if n := len(g.audited(t)); n != 3 {
			t.Errorf("the audit has %d runs; want 3, without the repeated one", n)
		}
	})
}

// audited returns the outcomes of the runs in the audit, the newest first.
func (g *rig) audited(t *testing.T) (outcomes []string) {
	t.Helper()
	page, _, err := g.cfg.Audit.Read(t.Context(), audit.Filter{Call: "autoscale"}, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range page {
		if page[i].Name != "autoscale/gpu" || page[i].Target != "gpu" {
			t.Errorf("the audit has %+v; want autoscale/gpu, and gpu", page[i])
		}
		outcomes = append(outcomes, page[i].Outcome)
	}
	return outcomes
}

// TestAdopts: a first look at a pool with enough nodes notes their number, and nothing runs; from then
// on the command may ask for fewer.
func TestAdopts(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, tell)
		g.fleet.say(0, 0, 0)
		g.look()
		if g.Exists(g.keys.last) {
			t.Error("the number of an empty pool is noted")
		}
		g.fleet.say(1, 4, 1)
		g.look()
		g.expect(t, "at the first look")
		g.look()
		g.expect(t, "at the second look", "1")
	})
}

// TestDecide: the number stays within its bounds and above the nodes that run jobs, and is smaller
// than before only while nothing is wrong.
func TestDecide(t *testing.T) {
	t.Parallel()
	c := &Config{MinNodes: 1, MaxNodes: 10}
	type pool struct{ wanted, nodes, draining, busy, slots int }
	for name, test := range map[string]struct {
		pool   pool
		last   int
		silent bool
		waits  int64
		nodes  int
		do     step
	}{
		"more":                             {pool: pool{wanted: 4, nodes: 2}, last: 2, nodes: 4, do: run},
		"more, which already start":        {pool: pool{wanted: 4, nodes: 2}, last: 4, nodes: 4, do: run},
		"as many":                          {pool: pool{wanted: 4, nodes: 4}, last: 4, nodes: 4, do: rest},
		"fewer":                            {pool: pool{wanted: 2, nodes: 4}, last: 4, nodes: 2, do: run},
		"fewer than are still there":       {pool: pool{wanted: 8, nodes: 8}, last: 5, nodes: 8, do: rest},
		"fewer than start":                 {pool: pool{wanted: 4, nodes: 3}, last: 8, nodes: 4, do: run},
		"fewer, with a silent node":        {pool: pool{wanted: 2, nodes: 4}, last: 5, silent: true, nodes: 2, do: rest},
		"more, with a silent node":         {pool: pool{wanted: 6, nodes: 4}, last: 5, silent: true, nodes: 6, do: run},
		"fewer, while jobs wait too long":  {pool: pool{wanted: 1}, last: 20, waits: 2000, nodes: 1, do: rest},
		"none":                             {pool: pool{nodes: 3}, last: 3, nodes: 1, do: run},
		"none, but two run jobs":           {pool: pool{nodes: 3, busy: 2}, last: 3, nodes: 2, do: run},
		"draining nodes are machines":      {pool: pool{wanted: 5, nodes: 3, draining: 2, slots: 1}, last: 5, nodes: 7, do: run},
		"a draining node runs a job":       {pool: pool{draining: 1, busy: 1}, last: 1, nodes: 2, do: run},
		"too many":                         {pool: pool{wanted: 40, nodes: 3}, last: 3, nodes: 10, do: run},
		"too many run jobs":                {pool: pool{wanted: 40, nodes: 12, busy: 12}, last: 10, nodes: 12, do: refuse},
		"an empty system":                  {last: unknown, nodes: 1, do: rest},
		"the first job of an empty system": {pool: pool{wanted: 1, slots: 1}, last: unknown, nodes: 1, do: run},
		"a system with nodes":              {pool: pool{wanted: 1, nodes: 3}, last: unknown, nodes: 3, do: adopt},
		"a system that needs more":         {pool: pool{wanted: 5, nodes: 3, slots: 9}, last: unknown, nodes: 5, do: run},
	} {
		p := &demand.PoolDemand{
			Nodes: test.pool.nodes, Draining: test.pool.draining, BusyNodes: test.pool.busy, NodesWanted: &test.pool.wanted, TargetWaitMS: 1000,
		}
		p.WantedSlots, p.OldestWaitMS = test.pool.slots, test.waits
		if nodes, do := c.decide(p, test.last, test.silent); nodes != test.nodes || do != test.do {
			t.Errorf("%s: %d nodes, step %d; want %d, step %d", name, nodes, do, test.nodes, test.do)
		}
	}
}

// TestNoTarget: a pool that the command never runs for is named once.
func TestNoTarget(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, tell)
		g.id = "cpu" // has no target
		g.look()
		g.id = "cup"
		g.look()
		if n := g.logs.FilterMessage("autoscale.no_target").Len(); n != 1 {
			t.Errorf("%d warnings; want 1", n)
		}
	})
}

// TestCommandFails: the log has the error and the end of the output, and the command runs again.
func TestCommandFails(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, tell+`; head -c 100000 /dev/zero | tr '\0' x; echo "no quota" >&2; test -e "$FILE.ok"`)
		g.fleet.say(2, 1, 0)
		g.look()
		failed := g.logs.FilterMessage("autoscale.failed").All()
		if len(failed) != 1 {
			t.Fatalf("%d failures are logged; want 1", len(failed))
		}
		fields := failed[0].ContextMap()
		output := fmt.Sprint(fields["output"])
		if !strings.HasSuffix(output, "xxno quota\n") || len(output) != outputBytes || fields["error"] != "exit status 1" {
			t.Errorf("the log has the error %v and %d bytes of output, %q", fields["error"], len(output), output[max(len(output)-20, 0):])
		}
		if err := os.WriteFile(g.file+".ok", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		g.look()
		g.expect(t, "within the cool-down", "2")
		g.cool()
		g.look()
		g.fleet.say(2, 2, 0)
		g.cool()
		g.look()
		g.expect(t, "after the cool-down", "2", "2")
		if got := fmt.Sprint(g.audited(t)); got != "[done failed]" {
			t.Errorf("the audit has %s; want [done failed]", got)
		}
	})
}

// TestNoProgram: a program that is gone is a failure like others.
func TestNoProgram(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, "")
		g.Scaler.cfg.Argv = []string{filepath.Join(t.TempDir(), "none"), "{nodes}"}
		g.fleet.say(2, 0, 0)
		g.look()
		if n := g.logs.FilterMessage("autoscale.failed").Len(); n != 1 {
			t.Errorf("%d failures are logged; want 1", n)
		}
	})
}

// child returns the process id that the command wrote.
func (g *rig) child(t *testing.T) int {
	var pid int
	waittest.Until(t, "the command's child", func() bool {
		data, _ := os.ReadFile(g.file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(data)))
		return pid > 0
	})
	return pid
}

// hang starts a child that holds the output open, and waits for it.
const hang = `sleep 1000 & echo $! >"$FILE"; wait`

// TestEnds: a run ends with all that it started when its time is over, and when the replica stops.
func TestEnds(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, hang)
		g.fleet.say(1, 0, 0)
		looked := make(chan struct{})
		go func() { defer close(looked); g.look() }()
		pid := g.child(t)
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
		defer cancel()
		if err := g.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		waittest.Receive(t, "the end of the command", looked)
		g.gone(t, pid)

		late := g.scaler(t)
		late.Scaler.cfg.Timeout = 3 * time.Second
		g.cool()
		if err := os.Remove(g.file); err != nil {
			t.Fatal(err)
		}
		late.look()
		g.gone(t, g.child(t))
		failed := g.logs.FilterMessage("autoscale.failed").All()
		if n := len(failed); n != 2 || !strings.Contains(fmt.Sprint(failed[1].ContextMap()["error"]), "deadline") {
			t.Errorf("%d failures are logged, the last one %v", n, failed)
		}
	})
}

func (g *rig) gone(t *testing.T, pid int) {
	t.Helper()
	waittest.Until(t, "the end of the command's child", func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil && syscall.Kill(pid, 0) != nil || strings.Contains(string(state), ") Z ")
	})
}

// TestOutage: without Redis nothing runs, and the log says so once.
func TestOutage(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, tell)
		g.Do("HSET", g.keys.last, "field", "value") // a wrong type, which the call refuses
		g.fleet.say(2, 0, 0)
		g.look()
		g.look()
		g.expect(t, "while the call fails")
		g.Do("DEL", g.keys.last)
		g.look()
		g.expect(t, "afterwards", "2")
		if lost, back := g.logs.FilterMessage("autoscale.no_turn").Len(), g.logs.FilterMessage("autoscale.turn_again").Len(); lost != 1 || back != 1 {
			t.Errorf("%d outages and %d ends are logged; want one of each", lost, back)
		}
	})
}

func TestTail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var end tail
		var all []byte
		for _, part := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 3*outputBytes/2), 0, 5).Draw(t, "parts") {
			all = append(all, part...)
			if n, err := end.Write(part); n != len(part) || err != nil {
				t.Fatalf("wrote %d of %d bytes, %v", n, len(part), err)
			}
		}
		if want := all[max(len(all)-outputBytes, 0):]; string(end.kept) != string(want) {
			t.Fatalf("kept %d bytes; want the last %d", len(end.kept), len(want))
		}
	})
}
