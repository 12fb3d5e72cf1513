package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// Actions on the locks themselves, with the target locksTarget. Redis keeps its data at Revoke
// alone.
const (
	locksTarget = "locks"
	// Revoke is schedctl lock rm, and Delete is by hand.
	Revoke Action = "revoke"
	// RevokeNow is schedctl lock rm --now.
	RevokeNow Action = "revoke now"
	Delete    Action = "delete"
)

const lockHolders = 4

var lockKeys = []string{"fair", "unfair-1", "unfair-2"}

// lockRun is a run of processes that hold locks.
type lockRun struct {
	seed uint64
	plan []Breakage
	// loses: Redis may lose what it has acknowledged.
	loses bool
	// replicas must have a grant before it counts.
	replicas int
	// programs is the folder of the binary; empty is the folder of this build.
	programs string
}

// TestLockFaults: faults in which Redis keeps its data.
func TestLockFaults(t *testing.T) {
	t.Parallel()
	seed, length := seedOfRun(t), lengthOfRun(t)
	weak := weakHolders()
	weak[redisTarget] = weakness{5 * time.Second, []Action{Kill, Freeze, Freeze, Drop}, 50 * time.Millisecond, 1500 * time.Millisecond}
	weak[locksTarget] = weakness{time.Second, []Action{Revoke}, 0, 0}
	for i := range lockHolders {
		weak[wayPrefix+holderName(i)] = weakness{5 * time.Second, []Action{Hole, Hole, Reset, Slow, Cut}, 100 * time.Millisecond, 3 * time.Second}
	}
	testLocks(t, lockRun{seed: seed, plan: planOf(seed, length, weak)}, length)
}

// TestLockFaultsThatLoseData: holders may find out late then, but the register takes no older one.
func TestLockFaultsThatLoseData(t *testing.T) {
	t.Parallel()
	seed, length := seedOfRun(t), lengthOfRun(t)
	weak := weakHolders()
	weak[locksTarget] = weakness{600 * time.Millisecond, []Action{Delete, RevokeNow, Flush, Empty, FailOver}, 0, lossLength}
	testLocks(t, lockRun{seed: seed, plan: planOf(seed, length, weak), loses: true}, length)
}

// TestLockFaultsReplicated: failovers lose writes, but none that a replica had to confirm.
func TestLockFaultsReplicated(t *testing.T) {
	t.Parallel()
	seed, length := seedOfRun(t), lengthOfRun(t)
	weak := weakHolders()
	weak[locksTarget] = weakness{time.Second, []Action{FailOver}, lossLength / 2, 2 * lossLength}
	testLocks(t, lockRun{seed: seed, plan: planOf(seed, length, weak), replicas: 1}, length)
}

func testLocks(t *testing.T, r lockRun, length time.Duration) {
	t.Helper()
	t.Logf("this run again: make faults SEED=%d DURATION=%s", r.seed, length)
	ops := r.do(t)
	for _, v := range r.check(ops) {
		t.Errorf("%s", v)
	}
	t.Log(lockSummary(ops))
}

func weakHolders() map[string]weakness {
	weak := map[string]weakness{}
	for i := range lockHolders {
		weak[holderName(i)] = weakness{5 * time.Second, []Action{Kill, Freeze, Freeze}, 50 * time.Millisecond, 2 * time.Second}
	}
	return weak
}

func holderName(i int) string { return "h" + strconv.Itoa(i+1) }

// check lists what is wrong with the run.
func (r lockRun) check(ops []LockOp) []Violation {
	if r.loses {
		return CheckLocks(ops, LockLease)
	}
	return CheckLocks(ops, 0)
}

// do starts the holders, breaks things, and returns what the holders did. In the end each lock must
// be taken again.
func (r lockRun) do(t *testing.T) []LockOp {
	t.Helper()
	folder := runFolder(t, filepath.Base(t.Name()))
	f := &fleet{
		t: t, rec: NewRecorder(), folder: folder, cfg: fleetConfig{programs: r.programs},
		proxies:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		programs: map[string]*program{}, ways: map[string]*toxiproxy.Proxy{},
	}
	l := &lockBreaker{loser: &loser{breaker: &breaker{fleet: f}}, rng: rand.New(rand.NewPCG(r.seed, 5)), register: redistest.New(t)}
	l.more = map[Action]func(context.Context, Breakage){
		Revoke: l.revoke, RevokeNow: l.revoke, Delete: l.delete, Flush: l.flush, Empty: l.empty, FailOver: l.failOver,
	}
	if r.loses || r.replicas > 0 {
		servers := redistest.NewWithReplicas(t, 1)
		f.redis, l.replica = servers.Server, servers.Replicas[0]
	} else {
		f.redis = redistest.New(t, redistest.AppendOnly("always"))
	}
	t.Cleanup(func() {
		for _, way := range f.ways {
			way.Stop()
		}
	})
	for i := range lockHolders {
		name := holderName(i)
		f.programs[name] = newProgram(t, f.rec, folder, name, "lockholder.started", f.path("lockholder"),
			"-redis", f.way(name), "-register", l.register.URL(), "-keys", strings.Join(lockKeys, ","),
			"-seed", strconv.FormatUint(r.seed*100+uint64(i), 10), "-replicas", strconv.Itoa(r.replicas))
		f.programs[name].start()
	}
	f.awaitUp(startLimit)
	l.run(t.Context(), r.plan)
	f.awaitUp(startLimit)
	l.awaitHolds()
	var ops []LockOp
	for name, p := range f.programs {
		p.kill()
		ops = append(ops, readOps(t, filepath.Join(folder, name+".log"))...)
	}
	return ops
}

// readOps reads what a holder did from its log, which has lines of other kinds, too.
func readOps(t *testing.T, file string) (ops []LockOp) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var op LockOp
		if json.Unmarshal(line, &op) == nil {
			ops = append(ops, op)
		}
	}
	return ops
}

// lockBreaker breaks locks, too.
type lockBreaker struct {
	*loser
	rng      *rand.Rand // for the one goroutine that breaks locks
	register *redistest.Server
}

// anyKey is one of the locks.
func (l *lockBreaker) anyKey() string { return lockKeys[l.rng.IntN(len(lockKeys))] }

func (l *lockBreaker) revoke(ctx context.Context, p Breakage) {
	client, err := l.client()
	if err != nil {
		return // Redis is down
	}
	defer client.Close()
	limit, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	_, _ = lock.NewAdmin(client, lock.DefaultKeyPrefix, false, zap.NewNop()).Revoke(limit, lock.Revocation{
		Key: l.anyKey(), Operator: "test", Reason: "test", Now: p.Action == RevokeNow,
	})
}

func (l *lockBreaker) delete(ctx context.Context, _ Breakage) {
	l.must(ask(ctx, l.redis.Process(), "DEL", lock.DefaultKeyPrefix+":held:"+l.anyKey()).Error())
}

// awaitHolds waits until each lock was taken twice more. The first time alone proves nothing: the
// holder may have got it earlier, and count only now.
func (l *lockBreaker) awaitHolds() {
	l.t.Helper()
	counts := func(ctx context.Context) (out []int64, err error) {
		for _, key := range lockKeys {
			n, failed := ask(ctx, l.register.Process(), "GET", "holds:"+key).AsInt64()
			out, err = append(out, n), errors.Join(err, failed)
		}
		return out, err
	}
	begin, err := counts(l.t.Context())
	l.must(err)
	if err := redistest.Await(func(ctx context.Context) bool {
		now, err := counts(ctx)
		for i := range now {
			if err != nil || now[i] < begin[i]+2 {
				return false
			}
		}
		return true
	}); err != nil {
		l.t.Errorf("not all of %v were taken again: %v", lockKeys, err)
	}
}

// lockSummary counts what happened.
func lockSummary(ops []LockOp) string {
	count := map[string]int{}
	for _, known := range byKey(ops) {
		for _, op := range known {
			switch {
			case op.Kind == Acquire && op.Live == 0:
				count["acquired late"]++
			case op.Kind == Write && op.Return == 0:
				count["unknown"]++
			case op.Kind == Write && !op.Accepted:
				count["refused"]++
			default:
				count[string(op.Kind)]++
			}
		}
	}
	return fmt.Sprint(count)
}
