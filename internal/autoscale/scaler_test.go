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
	p := demand.PoolDemand{Pool: "gpu", Nodes: nodes, BusyNodes: busy}
	if wanted >= 0 {
		p.NodesWanted = &wanted
	}
	f.picture.Store(&demand.DemandList{Pools: []demand.PoolDemand{{Pool: "cpu"}, p}})
}

// rig is a scaler whose command adds what it is told to a file, and what it logged.
type rig struct {
	*scripttest.Rig
	*Scaler
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
		Pools: []string{"gpu"}, MaxNodes: 10, Cooldown: time.Hour, Timeout: time.Minute, Replica: "a",
		Demand: g.fleet.picture.Load, Audit: audit.New(audit.Config{}, r.Runner, zap.NewNop(), nil), Log: zap.New(core),
	}
	g.Scaler = g.scaler(t)
	return g
}

// scaler makes another scaler of the same pool.
func (g *rig) scaler(t *testing.T) *Scaler {
	s := New(g.cfg, g.Runner)
	t.Cleanup(func() {
		if err := s.Stop(waittest.Context(t)); err != nil {
			t.Errorf("stop: %v; want nil", err)
		}
	})
	return s
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
func (g *rig) cool() { g.Do("DEL", g.keys("gpu").turn) }

// TestOneReplicaRuns: of several replicas one runs the command for a need, no sooner than the
// cool-down, and again until the nodes are there.
func TestOneReplicaRuns(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, tell)
		g.look("gpu")
		g.expect(t, "without a proposal")
		g.fleet.say(3, 1, 0)
		var all sync.WaitGroup
		for range 8 {
			s := g.scaler(t)
			all.Go(func() { s.look("gpu") })
		}
		all.Wait()
		g.expect(t, "at eight replicas", "3")
		if left := g.Int("PTTL", g.keys("gpu").turn); left <= 0 || left > g.cfg.Cooldown.Milliseconds() {
			t.Errorf("the turn ends in %d ms; want at most the cool-down", left)
		}
		g.fleet.say(5, 1, 0)
		g.look("gpu")
		g.expect(t, "within the cool-down", "3")
		g.cool()
		g.look("gpu")
		g.expect(t, "after the cool-down", "3", "5")
		g.cool()
		g.look("gpu")
		g.expect(t, "while nodes still start", "3", "5", "5")
		g.fleet.say(5, 5, 0)
		g.cool()
		g.look("gpu")
		g.expect(t, "with all nodes there", "3", "5", "5")
		if g.Exists(g.keys("gpu").turn) {
			t.Error("a replica took the turn for nothing")
		}
		g.fleet.say(0, 0, 0) // all of them fell silent
		g.look("gpu")
		g.expect(t, "without a need, and without nodes", "3", "5", "5", "0")
		if n := g.logs.FilterMessage("autoscale.ran").Len(); n != 4 {
			t.Errorf("%d runs are logged; want 4", n)
		}
		g.checkAudit(t, "done", "done", "done", "done")
	})
}

func (g *rig) checkAudit(t *testing.T, outcomes ...string) {
	t.Helper()
	page, _, err := g.cfg.Audit.Read(t.Context(), audit.Filter{Call: "autoscale"}, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range page {
		if page[i].Name != "autoscale/gpu" || page[i].Target != "gpu" {
			t.Errorf("the audit has %+v; want autoscale/gpu, and gpu", page[i])
		}
		got = append(got, page[i].Outcome)
	}
	if fmt.Sprint(got) != fmt.Sprint(outcomes) {
		t.Errorf("the audit has %q; want %q", got, outcomes)
	}
}

// TestWanted: never more nodes than configured, and never fewer than run jobs.
func TestWanted(t *testing.T) {
	t.Parallel()
	g := &rig{}
	s := &Scaler{cfg: Config{MaxNodes: 10, Demand: g.fleet.picture.Load}}
	for _, test := range []struct{ wanted, nodes, busy, want int }{
		{0, 3, 0, 0},
		{0, 3, 2, 2},
		{4, 3, 2, 4},
		{40, 3, 2, 10},
		{40, 12, 12, 12},
		{-1, 3, 2, -1},
	} {
		g.fleet.say(test.wanted, test.nodes, test.busy)
		nodes, present, known := s.wanted("gpu")
		if !known {
			nodes, present = -1, test.nodes
		}
		if nodes != test.want || present != test.nodes {
			t.Errorf("%+v: %d nodes, %d present", test, nodes, present)
		}
	}
	if _, _, known := s.wanted("cpu"); known {
		t.Error("a pool without a target is known")
	}
}

// TestCommandFails: the log has the error and the end of the output, and the command runs again.
func TestCommandFails(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, tell+`; head -c 100000 /dev/zero | tr '\0' x; echo "no quota" >&2; test -e "$FILE.ok"`)
		g.fleet.say(2, 2, 0)
		g.look("gpu")
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
		g.look("gpu")
		g.expect(t, "within the cool-down", "2")
		for range 2 {
			g.cool()
			g.look("gpu")
		}
		g.expect(t, "after the cool-down", "2", "2")
		g.checkAudit(t, "done", "failed")
	})
}

// TestNoProgram: a program that is gone is a failure like others.
func TestNoProgram(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		g := newRig(t, r, "")
		g.Scaler.cfg.Argv = []string{filepath.Join(t.TempDir(), "none"), "{nodes}"}
		g.fleet.say(2, 0, 0)
		g.look("gpu")
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
		go func() { defer close(looked); g.look("gpu") }()
		pid := g.child(t)
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
		defer cancel()
		if err := g.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		waittest.Receive(t, "the end of the command", looked)
		g.gone(t, pid)

		late := g.scaler(t)
		late.cfg.Timeout = time.Second / 2
		g.cool()
		if err := os.Remove(g.file); err != nil {
			t.Fatal(err)
		}
		late.look("gpu")
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
		g.Do("HSET", g.keys("gpu").last, "field", "value") // a wrong type, which the call refuses
		g.fleet.say(2, 0, 0)
		g.look("gpu")
		g.look("gpu")
		g.expect(t, "while the call fails")
		g.Do("DEL", g.keys("gpu").last)
		g.look("gpu")
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
