package faults

import (
	"context"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// missedLimit is how long a job may wait for the heartbeat that names it, and more.
const missedLimit = 5 * time.Second

// TestUpgradeGateway runs a replica and a node of the previous release, which knows no gateways, beside
// a replica of this build and a node that it connects. The former replica delivers to a stream that no
// gateway reads; heartbeats start what was missed.
func TestUpgradeGateway(t *testing.T) {
	old, seed := buildRelease(t), seedOfRun(t)
	t.Logf("this run again: SEED=%d go test -C test/faults -run '^TestUpgradeGateway$' .", seed)
	folder := runFolder(t, "upgrade-gateway")
	f := newFleet(t, NewRecorder(), folder, fleetConfig{
		replicas: 1, cells: 1, interval: 500 * time.Millisecond, limit: 2 * time.Second, programs: old,
	})
	u := &upgrade{fleet: f, old: old, now: programs, seed: seed, open: &register{}}
	u.addNode("n1", 3)
	u.cfg.programs, u.cfg.linked = u.now, []string{"n2"}
	u.writeTokens()
	u.addReplica("r2")
	u.addNode("n2", 4) // it tries r1 as well, which is no gateway

	u.startAs("r2", u.now)
	u.startAs("n2", u.now)
	u.placeMissed()
	u.placeElsewhere()
	rested := u.loadBoth()
	u.programs["n1"].stop()
	u.placeMissed() // that removes what cancels have left
	u.programs["n2"].stop()
	if n := u.streamed("n2"); n > 0 {
		t.Errorf("%d entries are left for a node that is gone", n)
	}
	u.askAgain(t.Context(), u.open)
	history := u.history()
	final, err := u.read(true)
	if err != nil {
		t.Fatal(err)
	}
	history.Final = final
	judge(t, history, rested, folder, u.checkLogs()...)
}

// placeMissed has the former replica place jobs on the node behind the gateway, alone and while the
// gateway is frozen. They begin with the node's next heartbeat, which removes their stream.
func (u *upgrade) placeMissed() {
	u.t.Helper()
	l := newLoader(u.t, u.fleet, "missed", "ws://"+u.replicas["r1"], u.seed, &u.next, u.open)
	ctx, cancel := context.WithTimeout(u.t.Context(), missedLimit)
	defer cancel()
	u.awaitNode(ctx, "r1", "n2")
	u.programs["r2"].signal(syscall.SIGSTOP)
	tasks := u.place(ctx, l, u.nodes["n2"])
	for u.streamed("n2") == 0 {
		if !pause(ctx, askAgainAfter) {
			u.t.Error("the former replica delivered nothing to the node's stream")
			break
		}
	}
	u.programs["r2"].signal(syscall.SIGCONT)
	l.jobs.Wait()
	u.ranOn("n2", tasks)
	if n := u.streamed("n2"); n > 0 {
		u.t.Errorf("%d entries are left in a stream that no one reads", n)
	}
}

// placeElsewhere has the replica of this build place jobs on the node of the previous release, alone.
func (u *upgrade) placeElsewhere() {
	u.t.Helper()
	l := newLoader(u.t, u.fleet, "elsewhere", "ws://"+u.replicas["r2"], u.seed, &u.next, u.open)
	ctx, cancel := context.WithTimeout(u.t.Context(), restLimit)
	defer cancel()
	if err := u.anyReplica(lookLimit, http.MethodPost, "/v1/nodes/n2/drain", nil, nil); err != nil {
		u.t.Fatal(err)
	}
	u.rec.Add(Event{Kind: Drained, Node: "n2"})
	u.startAs("n1", u.old)
	u.awaitNode(ctx, "r2", "n1")
	tasks := u.place(ctx, l, 2*u.nodes["n1"])
	l.jobs.Wait()
	u.ranOn("n1", tasks)
	u.undrain("n2")
}

// awaitNode waits until a replica knows of a node that is online.
func (u *upgrade) awaitNode(ctx context.Context, replica, node string) {
	u.t.Helper()
	for {
		var known struct{ Status freeslot.Status }
		_, _, err := call(ctx, http.MethodGet, "http://"+u.replicas[replica]+"/v1/nodes/"+node, nil, &known)
		if err == nil && known.Status == freeslot.StatusOnline {
			return
		}
		if !pause(ctx, askAgainAfter) {
			u.t.Fatalf("%s does not know that %s is online: %+v %v", replica, node, known, err)
		}
	}
}

// place submits plain jobs, one after the other.
func (u *upgrade) place(ctx context.Context, l *loader, jobs int) map[int]bool {
	tasks := map[int]bool{}
	for range jobs {
		task := Task{N: int(u.next.Add(1)), Slots: 1, TakeMS: 5}
		tasks[task.N] = true
		l.submit(ctx, []Task{task})
	}
	return tasks
}

// ranOn checks that all these jobs have ended, and that they ran on this node.
func (u *upgrade) ranOn(node string, tasks map[int]bool) {
	u.t.Helper()
	ended := map[int]bool{}
	for _, e := range u.rec.Events() {
		switch {
		case !tasks[e.N]:
		case e.Kind == Begun && e.Node != node:
			u.t.Errorf("submission %d ran on %s, expected %s", e.N, e.Node, node)
		case e.Kind == Learned:
			ended[e.N] = true
		}
	}
	if len(ended) != len(tasks) {
		u.t.Errorf("%d of %d jobs ended on %s", len(ended), len(tasks), node)
	}
}

// streamed is how many entries the node's dispatch stream has.
func (u *upgrade) streamed(node string) int64 {
	u.t.Helper()
	client, err := u.client()
	if err != nil {
		u.t.Fatal(err)
	}
	defer client.Close()
	n, err := client.Do(u.t.Context(), client.B().Xlen().Key(u.layout(node).Dispatch(node)).Build()).AsInt64()
	if err != nil {
		u.t.Fatal(err)
	}
	return n
}

// loadBoth has both replicas place jobs on both nodes, takes the gateway away for a moment, and reports
// whether everything came to rest.
func (u *upgrade) loadBoth() (rested bool) {
	all, endAll := context.WithCancel(u.t.Context())
	submit, endSubmit := context.WithCancel(all)
	defer endAll()
	defer endSubmit()
	var loads, others sync.WaitGroup
	for i, replica := range []string{"r1", "r2"} {
		l := newLoader(u.t, u.fleet, loaderName(i), u.urls(replica), u.seed*100+uint64(i), &u.next, u.open)
		loads.Go(func() { l.run(submit, all, upgradeRate/4) })
	}
	others.Go(func() { u.look(submit, mathrand.New(mathrand.NewPCG(u.seed, 3)), u.open) })
	others.Go(func() { u.watchSlots(submit) })

	pause(all, endPause)
	u.change(all, []step{{"r2", "r2"}}, u.now)
	pause(all, endPause)
	endSubmit()
	others.Wait()
	_, rested = u.awaitRest(restLimit, &loads)
	endAll()
	loads.Wait()
	return rested
}
