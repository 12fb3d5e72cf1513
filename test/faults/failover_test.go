package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const (
	// resumeLimit is how long after a new master is up the first job may take to be accepted and to
	// end. Sentinels take 0.9 s of it to announce the new master.
	resumeLimit = 3 * time.Second
	// lossLength is how long a master acknowledges what no replica gets.
	lossLength = 400 * time.Millisecond
	// beforeLoss is how much earlier than the last write that reached a replica a client can have
	// learned of the write.
	beforeLoss = 200 * time.Millisecond
	// promoteLimit bounds the promotion itself, which is none of ours.
	promoteLimit = 2 * time.Minute
	steady       = 1500 * time.Millisecond
	roleInterval = 5 * time.Millisecond
)

// TestSentinelFailover kills the master that sentinels watch, under load, and has it lose writes
// that it acknowledged.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinels(t)
	f, folder := newFailover(t, fleetConfig{slots: []int{2, 3, 4, 3}, cells: 1, store: &store{url: s.URL(), loses: true}})
	var loss Loss
	history, rested := runLoad(t, f, 1, restLimit, func(ctx context.Context, _ func(string)) {
		loss = f.loseMaster(ctx, s)
		f.resumed(ctx, loss.To, func(string) bool { return true })
		pause(ctx, steady)
		if os.Getenv("SHORT") != "1" { // it takes the sentinels ten seconds
			f.comeBack(ctx, s)
			pause(ctx, steady)
		}
	})
	history.Losses = []Loss{loss}
	judge(t, history, rested, folder)
	if lost := lostAnswers(history); lost == 0 {
		t.Error("no job was answered as lost, although writes were lost")
	} else {
		t.Logf("%d jobs were accepted, lost with the master's data, and answered as lost", lost)
	}
}

// TestReplicatedFailover is the same where jobs are accepted only when a replica has them: no
// accepted job is lost, and none is accepted while there is no replica.
func TestReplicatedFailover(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	t.Parallel()
	s := redistest.NewSentinels(t)
	f, folder := newFailover(t, fleetConfig{
		slots: []int{2, 3, 4, 3}, cells: 1, store: &store{url: s.URL(), loses: true}, replica: map[string]any{"acknowledge": "replicated"},
	})
	var loss Loss
	var replicas time.Duration
	history, rested := runLoad(t, f, 1, restLimit, func(ctx context.Context, _ func(string)) {
		loss = f.loseMaster(ctx, s)
		pause(ctx, steady)
		replicas = f.rec.Now()
		f.resumed(ctx, f.comeBack(ctx, s), func(string) bool { return true })
		pause(ctx, steady)
	})
	loss.Keeps = true
	history.Losses = []Loss{loss}
	judge(t, history, rested, folder)
	if n := lostAnswers(history); n > 0 {
		t.Errorf("%d jobs were lost that a replica had", n)
	}
	for _, e := range history.Events {
		if e.Kind == Accepted && e.From > loss.To && e.At < replicas {
			t.Errorf("job %s was submitted at %s and accepted at %s, when there was no replica", e.Job, e.From, e.At)
		}
	}
}

// TestFrozenMasterFailover freezes the master, so that every connection to it stays open, and wakes
// it when another one has taken its place: for a while it takes itself for the master still.
func TestFrozenMasterFailover(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	t.Parallel()
	s := redistest.NewSentinels(t)
	f, folder := newFailover(t, fleetConfig{slots: []int{2, 3, 4, 3}, cells: 1, store: &store{url: s.URL(), loses: true}})
	var loss Loss
	history, rested := runLoad(t, f, 1, restLimit, func(ctx context.Context, _ func(string)) {
		pause(ctx, steady)
		loss.From = f.rec.Now() - beforeLoss
		f.fault("freeze the master")
		s.Master.Pause()
		up := f.promoted(ctx, s.Replica.Process())
		f.resumed(ctx, up, func(string) bool { return true })
		pause(ctx, steady)
		f.fault("the old master wakes up")
		s.Master.Resume()
		loss.To = f.demoted(ctx, s)
		pause(ctx, steady)
	})
	history.Losses = []Loss{loss}
	judge(t, history, rested, folder)
	t.Logf("%d jobs were answered as lost", lostAnswers(history))
}

// loseMaster kills the master after it has acknowledged writes that the replica does not get, and
// returns when the replica has taken its place.
func (f *fleet) loseMaster(ctx context.Context, s *redistest.Sentinels) Loss {
	f.t.Helper()
	pause(ctx, steady)
	cut := f.detour(ctx, s)
	loss := Loss{From: f.rec.Now() - beforeLoss}
	f.fault("the replica gets nothing any more")
	pause(ctx, lossLength)
	f.fault("kill the master")
	s.Master.Kill()
	cut()
	loss.To = f.promoted(ctx, s.Replica.Process())
	return loss
}

// comeBack starts the old master, which acts as a master until the sentinels correct it, and
// returns when it follows the new one.
func (f *fleet) comeBack(ctx context.Context, s *redistest.Sentinels) time.Duration {
	f.t.Helper()
	f.fault("the old master comes back")
	s.Master.Restart()
	return f.demoted(ctx, s)
}

// demoted returns when the old master follows the new one.
func (f *fleet) demoted(ctx context.Context, s *redistest.Sentinels) time.Duration {
	f.t.Helper()
	await(f.t, f.rec, promoteLimit, "the old master to become a replica", func(*Event) bool {
		info, err := ask(ctx, s.Master.Process(), "INFO", "replication").ToString()
		return err == nil && strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up")
	})
	return f.rec.Now()
}

// TestClusterFailover kills one master of a cluster under load, and has it lose writes that it
// acknowledged: its replica takes its place, and the cells on other masters go on meanwhile.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	history, _ := clusterFailover(t, nil)
	if lost := lostAnswers(history); lost == 0 {
		t.Error("no job was answered as lost, although writes were lost")
	}
}

// TestReplicatedClusterFailover is the same where jobs are accepted only when a replica has them.
func TestReplicatedClusterFailover(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	t.Parallel()
	history, loss := clusterFailover(t, map[string]any{"acknowledge": "replicated"})
	if n := lostAnswers(history); n > 0 {
		t.Errorf("%d jobs were lost that a replica had", n)
	}
	for _, e := range history.Events {
		if e.Kind == Accepted && e.Job != "" && loss.concerns(e.Job) && e.From > loss.From+beforeLoss && e.At < loss.To {
			t.Errorf("job %s was submitted at %s and accepted at %s, when no replica got anything", e.Job, e.From, e.At)
		}
	}
}

func clusterFailover(t *testing.T, replica map[string]any) (*History, Loss) {
	t.Helper()
	c := redistest.NewReplicaCluster(t)
	const cells = 3
	f, folder := newFailover(t, fleetConfig{
		slots: []int{2, 2, 2, 2, 2, 2, 2, 2}, cells: cells, store: &store{url: c.URL(), cluster: true, loses: true}, replica: replica,
	})
	old, dead, others := f.victim(c)
	loss := Loss{Cells: dead, Keeps: replica != nil}
	history, rested := runLoad(t, f, 1, restLimit, func(ctx context.Context, _ func(string)) {
		pause(ctx, steady)
		loss.From = f.loseClusterMaster(ctx, c, old)
		loss.To = f.promoted(ctx, c.Processes()[3:]...)
		up := loss.To
		if replica != nil { // who accepts nothing while it has no replica cannot resume before the old master is one
			f.restart(ctx, old)
			up = f.rec.Now()
		}
		f.resumed(ctx, up, func(id string) bool { return loss.concerns(id) })
		if replica == nil {
			f.restart(ctx, old)
		}
		pause(ctx, steady)
	})
	history.Losses = []Loss{loss}
	judge(t, history, rested, folder)
	meanwhile := endedBetween(history, loss.From+2*beforeLoss, loss.To, others)
	t.Logf("%d jobs of other cells began and ended while the master was away; %d jobs of its own were lost", meanwhile, lostAnswers(history))
	if meanwhile == 0 {
		t.Error("no job of the other cells ended while one master was away")
	}
	return history, loss
}

// loseClusterMaster kills a master of a cluster after it has acknowledged writes that its replica
// does not get, and returns when clients can first have learned of the lost writes.
func (f *fleet) loseClusterMaster(ctx context.Context, c *redistest.ReplicaCluster, master *redisserver.Server) (from time.Duration) {
	f.t.Helper()
	procs := c.Processes()
	replica := procs[3+slices.Index(procs[:3], master)]
	from = f.rec.Now() - beforeLoss
	f.fault("the replica gets nothing any more")
	// Frozen, it does not follow again when its connection is cut, and what is written from then on
	// reaches not even its socket.
	err := errors.Join(replica.Pause(), ask(ctx, master, "CLIENT", "KILL", "TYPE", "replica").Error())
	pause(ctx, 2*lossLength) // a third of the jobs are of its cell; less than the time after which it would be replaced
	f.fault("kill the master")
	if err := errors.Join(err, master.Kill(), replica.Resume()); err != nil {
		f.t.Error(err)
	}
	return from
}

func (f *fleet) restart(ctx context.Context, proc *redisserver.Server) {
	f.t.Helper()
	f.fault("the old master comes back")
	if err := proc.Restart(ctx); err != nil {
		f.t.Error(err)
	}
}

// newFailover starts a fleet on a Redis that fails over.
func newFailover(t *testing.T, cfg fleetConfig) (f *fleet, folder string) {
	t.Helper()
	folder = runFolder(t, t.Name())
	cfg.replicas, cfg.interval, cfg.limit = 2, 500*time.Millisecond, 2*time.Second
	return newFleet(t, NewRecorder(), folder, cfg), folder
}

func (f *fleet) fault(note string) { f.rec.Add(Event{Kind: Fault, Who: redisTarget, Note: note}) }

// detour leads the replication over a proxy that lets nothing through any more, once the replica
// has everything. cut ends it, with what is on its way.
func (f *fleet) detour(ctx context.Context, s *redistest.Sentinels) (cut func()) {
	f.t.Helper()
	port, err := redisserver.FreePort()
	if err != nil {
		f.t.Fatal(err)
	}
	way := toxiproxy.NewProxy(f.proxies, "replication", fmt.Sprintf("127.0.0.1:%d", port), s.Master.Process().Addr())
	if err := way.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.ways["replication"] = way
	if err := ask(ctx, s.Replica.Process(), "REPLICAOF", "127.0.0.1", fmt.Sprint(port)).Error(); err != nil {
		f.t.Fatal(err)
	}
	if err := redistest.Await(func(ctx context.Context) bool {
		info, err := ask(ctx, s.Replica.Process(), "INFO", "replication").ToString()
		return err == nil && strings.Contains(info, "master_link_status:up") && strings.Contains(info, fmt.Sprintf("master_port:%d", port))
	}); err != nil {
		f.t.Fatalf("wait for the replica to follow by the proxy: %v", err)
	}
	if _, err := way.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(toxics[Hole], "downstream"))); err != nil {
		f.t.Fatal(err)
	}
	return way.Stop
}

// promoted returns when one of the servers that were replicas is a master that takes writes.
func (f *fleet) promoted(ctx context.Context, replicas ...*redisserver.Server) time.Duration {
	f.t.Helper()
	begin := f.rec.Now()
	limit, cancel := context.WithTimeout(ctx, promoteLimit)
	defer cancel()
	for pause(limit, roleInterval) {
		for _, proc := range replicas {
			if role(limit, proc) == "master" && takesWrites(limit, proc) {
				up := f.rec.Now()
				f.fault("a new master is up")
				f.t.Logf("a new master was up %s after the old one had gone", (up - begin).Round(time.Millisecond))
				return up
			}
		}
	}
	f.t.Fatalf("no replica has become a master within %s", promoteLimit)
	return 0
}

// resumed waits for the first job that was accepted after Redis took writes again, and has ended,
// and reports how long that took.
func (f *fleet) resumed(ctx context.Context, up time.Duration, counts func(id string) bool) {
	f.t.Helper()
	busy := margin()
	limit, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for pause(limit, roleInterval) {
		since := map[string]bool{}
		for _, e := range f.rec.Events() {
			if e.Kind == Accepted && e.At >= up && counts(e.Job) {
				since[e.Job] = true
			}
			if e.Kind != Learned || e.State != freeslot.StateSucceeded || !since[e.Job] {
				continue
			}
			took := e.At - up
			f.t.Logf("the first job was accepted and ended %s after Redis took writes again", took.Round(time.Millisecond))
			if took > resumeLimit+busy() {
				f.t.Errorf("service resumed %s after Redis took writes again, expected at most %s", took, resumeLimit)
			}
			return
		}
	}
	f.t.Errorf("service has not resumed %s after Redis took writes again", startLimit)
}

// victim is a master that has cells; dead are these, and others those that live elsewhere. Both
// have nodes.
func (f *fleet) victim(c *redistest.ReplicaCluster) (master *redisserver.Server, dead []int, others map[int]bool) {
	f.t.Helper()
	layouts := cell.Layouts(prefix, f.cfg.cells, true)
	nodes := map[int]int{}
	for name := range f.nodes {
		nodes[cell.NodeCell(name, len(layouts))]++
	}
	others = map[int]bool{}
	for i := range layouts {
		slot, _ := layouts[i].Slot()
		owner := c.Owner(uint16(slot))
		if master == nil {
			master = owner
		}
		if owner == master {
			dead = append(dead, i)
		} else {
			others[i] = true
		}
		if nodes[i] == 0 {
			f.t.Fatalf("cell %d has no node", i)
		}
	}
	if len(others) == 0 {
		f.t.Fatal("all cells live on one master")
	}
	for _, proc := range c.Processes() {
		// Otherwise no master answers while no server has the slots of one of them.
		if err := ask(f.t.Context(), proc, "CONFIG", "SET", "cluster-require-full-coverage", "no").Error(); err != nil {
			f.t.Fatal(err)
		}
	}
	return master, dead, others
}

// endedBetween counts the jobs of some cells that began and succeeded within a time.
func endedBetween(h *History, from, to time.Duration, cells map[int]bool) int {
	begun, ended := map[string]bool{}, 0
	for i := range h.Events {
		e := &h.Events[i]
		if e.At < from || e.At > to || e.Job == "" {
			continue
		}
		number, ok := cell.JobCell(e.Job)
		if !ok || !cells[number] {
			continue
		}
		if e.Kind == Begun {
			begun[e.Job] = true
		}
		if e.Kind == Learned && e.State == freeslot.StateSucceeded && begun[e.Job] {
			ended++
		}
	}
	return ended
}

func lostAnswers(h *History) int {
	lost := 0
	for i := range h.Events {
		if e := &h.Events[i]; e.Kind == Learned && e.isLost() {
			lost++
		}
	}
	return lost
}

// role is the role that a server reports: master or slave; "" without an answer.
func role(ctx context.Context, proc *redisserver.Server) string {
	parts, err := ask(ctx, proc, "ROLE").ToArray()
	if err != nil || len(parts) == 0 {
		return ""
	}
	kind, _ := parts[0].ToString()
	return kind
}

// takesWrites reports whether a master is in a cluster that works, or in none.
func takesWrites(ctx context.Context, proc *redisserver.Server) bool {
	info, err := ask(ctx, proc, "CLUSTER", "INFO").ToString()
	return err != nil || strings.Contains(info, "cluster_state:ok")
}

// ask sends one command to one server.
func ask(ctx context.Context, proc *redisserver.Server, command ...string) rueidis.RedisResult {
	limit, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	return redistest.Ask(limit, proc.Addr(), command...)
}
