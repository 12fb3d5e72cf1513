package faults

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
)

// The faults of a run of lists. A holder is a replica that carries out an operation: it is killed
// and comes back soon, or when the others have ended its operation; or it is frozen until they
// have.
const (
	FaultKillHolder   = "kill holder"
	FaultLoseHolder   = "lose holder"
	FaultFreezeHolder = "freeze holder"
	FaultDisk         = "disk full"
	FaultMemory       = "memory full"
	FaultKillControl  = "kill control"
	FaultFreeze       = "freeze control"
	FaultFlush        = "flush control"
	FaultKillServer   = "kill list server"
	FaultFreezeServer = "freeze list server"
	FaultFlushServer  = "flush list server"
	FaultSegments     = "delete segments"
	FaultFreezePeer   = "freeze peer"
	FaultKillPeer     = "kill peer"
)

const (
	// busySoon is for how long a fault waits for an operation that it is to hit.
	busySoon = 20 * time.Second
	// hitWithin bounds the random time from the begin of an operation to the fault.
	hitWithin = time.Second
	// fullBytes is what a file can have on a full disk, and fullFor how long disk and memory are
	// full.
	fullBytes, fullFor = 4096, 4 * time.Second
	// longestOutage bounds for how long a server is away.
	longestOutage = 3 * time.Second
	// frozenSwitches are those that a frozen peer sleeps through at least, and moreSwitches how many
	// there can be more: its version may be gone then.
	frozenSwitches, moreSwitches = 2, 3
	// lostSegments are how many are deleted at once.
	lostSegments = 5
)

// breakAll breaks one thing after the other until the end.
func (b *listsBed) breakAll(ctx context.Context, end time.Duration) {
	random := b.seedFor("faults")
	for i := 0; len(b.faults) > 0 && Clock() < end; i++ {
		what := b.faults[i%len(b.faults)]
		b.t.Logf("%s: %s", Clock(), what)
		b.break1(ctx, what, random)
		b.awaitUp(b.patience())
		pause(ctx, time.Second+rand64(random, 2*time.Second))
	}
}

func (b *listsBed) break1(ctx context.Context, what string, random *rand.Rand) {
	everyone := slices.Sorted(maps.Keys(listPeers))
	switch what {
	case FaultKillHolder, FaultLoseHolder, FaultFreezeHolder:
		b.breakHolder(ctx, what, random)
	case FaultDisk:
		b.awaitBusy(ctx, random)
		b.broken(what, nil, "", func() { b.fill(ctx) })
	case FaultMemory:
		b.awaitBusy(ctx, random)
		b.broken(what, nil, "", func() {
			b.memory(b.other(), "1")
			pause(ctx, fullFor)
			b.memory(b.other(), "0")
		})
	case FaultKillControl, FaultFreeze:
		b.broken(what, everyone, controlServer, func() { b.breakServer(ctx, b.servers[0], what == FaultKillControl, random) })
	case FaultKillServer, FaultFreezeServer:
		b.broken(what, everyone, otherServer, func() { b.breakServer(ctx, b.other(), what == FaultKillServer, random) })
	case FaultFlush:
		b.broken(what, everyone, "", func() { b.lose(b.works, func() { b.flush(b.servers[0]) }) })
	case FaultFlushServer:
		b.broken(what, everyone, "", func() { b.lose(b.works, func() { b.flush(b.other()) }) })
	case FaultSegments:
		b.broken(what, everyone, "", func() { b.lose(b.works[:1], func() { b.deleteSegments(b.works[0], random) }) })
	case FaultFreezePeer:
		name := everyone[random.IntN(len(everyone))]
		b.broken(what, []string{name}, "", func() { b.freezePeer(b.programs[name], frozenSwitches+random.IntN(moreSwitches)) })
	case FaultKillPeer:
		name := []string{"p1", "p3"}[random.IntN(2)] // p2 waits for a list that a flush may have taken
		b.broken(what, []string{name}, "", func() {
			b.programs[name].kill()
			b.programs[name].start()
			b.awaitUp(b.patience())
		})
	default:
		b.t.Errorf("there is no fault %q", what)
	}
}

// awaitBusy waits until an operation has run for a random time, and still runs. Without one for
// busySoon it returns no list.
func (b *listsBed) awaitBusy(ctx context.Context, random *rand.Rand) (busy *listWork, op lists.Operation) {
	began := func() bool {
		for _, w := range b.works {
			if op = w.seen().Op; op.ID != "" && op.Kind != lists.OpEdit {
				busy = w
				return true
			}
		}
		return false
	}
	for b.until(busySoon, began) {
		pause(ctx, rand64(random, hitWithin*time.Duration(1+b.members/listMembers)/2))
		if busy.seen().Op.ID == op.ID {
			return busy, op
		}
	}
	return nil, op
}

func (b *listsBed) breakHolder(ctx context.Context, what string, random *rand.Rand) {
	w, op := b.awaitBusy(ctx, random)
	if w == nil {
		return
	}
	p := b.programs[op.Holder]
	over := func() { b.until(lists.Lease+takenUp, func() bool { return w.seen().Op.ID != op.ID }) }
	b.broken(what, askReplicas(), "", func() {
		switch what {
		case FaultFreezeHolder:
			p.signal(syscall.SIGSTOP)
			over()
			p.signal(syscall.SIGCONT)
			return
		case FaultLoseHolder:
			p.kill()
			over()
		default:
			p.kill()
			pause(ctx, rand64(random, longestOutage))
		}
		p.start()
		b.awaitUp(b.patience())
	})
}

// fill has all disks be full.
func (b *listsBed) fill(ctx context.Context) {
	for _, bytes := range []uint64{fullBytes, 0} {
		for name := range b.replicas {
			p := b.programs[name]
			p.mu.Lock()
			if p.cmd != nil {
				if err := fullDisk(p.cmd.Process.Pid, bytes); err != nil {
					b.t.Errorf("limit the files of %s: %v", name, err)
				}
			}
			p.mu.Unlock()
		}
		if bytes > 0 {
			pause(ctx, fullFor)
		}
	}
}

func (b *listsBed) memory(s *listServer, limit string) {
	for _, proc := range s.procs {
		b.must(ask1(proc, "CONFIG", "SET", "maxmemory", limit).Error())
	}
}

func (b *listsBed) must(err error) {
	if err != nil {
		b.t.Errorf("a fault: %v", err)
	}
}

// breakServer kills a server, which keeps its data, or freezes it.
func (b *listsBed) breakServer(ctx context.Context, s *listServer, kill bool, random *rand.Rand) {
	proc := s.procs[random.IntN(len(s.procs))]
	if kill {
		b.must(proc.Kill())
		pause(ctx, rand64(random, longestOutage))
		again, cancel := context.WithTimeout(context.Background(), b.patience())
		defer cancel()
		b.must(proc.Restart(again))
		return
	}
	b.must(proc.Pause())
	pause(ctx, rand64(random, longestOutage))
	b.must(proc.Resume())
}

// lose loses data of lists, and returns when they have new versions.
func (b *listsBed) lose(works []*listWork, do func()) {
	do()
	for _, w := range works {
		w.hurt.Store(true)
	}
	b.until(b.patience(), func() bool {
		return !slices.ContainsFunc(works, func(w *listWork) bool { return w.hurt.Load() || w.recovering.Load() })
	})
}

func (b *listsBed) flush(s *listServer) {
	for _, proc := range s.procs {
		b.must(ask1(proc, "FLUSHALL").Error())
	}
}

// deleteSegments deletes some of the version that serves.
func (b *listsBed) deleteSegments(w *listWork, random *rand.Rand) {
	v := w.seen().Serving
	if v == nil {
		return
	}
	server := b.servers[0]
	if v.Server == otherServer {
		server = b.other()
	}
	for range lostSegments {
		key := lists.SegmentKey(prefix, w.name, v.Number, random.Uint32N(v.Segments))
		var gone int64
		for _, proc := range server.procs {
			n, _ := ask1(proc, "UNLINK", key).AsInt64() // the other masters of a cluster do not have it
			gone += n
		}
		b.t.Logf("deleted %s: %s", key, strconv.FormatInt(gone, 10))
	}
}

// freezePeer freezes a peer until its first list was switched so often.
func (b *listsBed) freezePeer(p *program, times int) {
	w := b.works[0]
	switches := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.switches
	}
	p.signal(syscall.SIGSTOP)
	first := switches()
	b.until(b.patience(), func() bool { return switches() >= first+times })
	p.signal(syscall.SIGCONT)
}
