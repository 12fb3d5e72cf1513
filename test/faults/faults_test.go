package faults

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

const (
	defaultLength = 60 * time.Second
	shortLength   = 12 * time.Second
	// restLimit is for how long nothing may move before the fleet is at rest, when the faults are over.
	restLimit = time.Minute
	// lookInterval is how often it is looked whether it has.
	lookInterval = 100 * time.Millisecond
	loaders      = 3
	// jobsASecond is the load of most seeds; the others have more than the nodes can do, so that
	// jobs wait all the time.
	jobsASecond   = 60
	jobsOverwhelm = 75
)

// TestFaults runs one seed: SEED, or a fresh one. DURATION is how long things break, SHORT=1 makes
// that short.
func TestFaults(t *testing.T) {
	seed, length := seedOfRun(t), lengthOfRun(t)
	replay := fmt.Sprintf("make faults SEED=%d DURATION=%s", seed, length)
	t.Logf("this run again: %s", replay)
	folder := runFolder(t, "seed-"+strconv.FormatUint(seed, 10))
	f := newFleet(t, NewRecorder(), folder, fleetConfig{
		replicas: 2, slots: []int{2, 3, 4, 3}, cells: 1 + int(seed%3)/2, interval: 500 * time.Millisecond, limit: 2 * time.Second,
		quick: seed%4 == 0, varied: true, linked: []string{"n2", "n3"}, // one of each class
	})
	history, rested := runLoad(t, f, seed, restLimit, func(ctx context.Context, crash func(client string)) {
		b := &breaker{fleet: f, crash: crash}
		b.run(ctx, Plan(seed, length, f.targets()))
		f.useGateways()
	})
	judge(t, history, rested, folder)
}

// runFolder makes an empty folder for the configurations, logs and history of a run. It is kept if
// the run fails.
func runFolder(t *testing.T, name string) string {
	t.Helper()
	folder := filepath.Join(logs, name)
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("FAILED; the history and the logs are in %s", folder)
		} else {
			_ = os.RemoveAll(folder)
		}
	})
	return folder
}

// shownViolations bounds the violations of a run that are listed.
const shownViolations = 30

// judge reports what is wrong with a run, and saves the history of a failed one. more are
// violations that Check does not know.
func judge(t *testing.T, history *History, rested bool, folder string, more ...Violation) {
	t.Helper()
	if !rested {
		t.Errorf("the fleet has not come to rest, and nothing has moved for %s", restLimit)
	}
	violations := slices.Concat(Check(history), more)
	for _, v := range violations[:min(len(violations), shownViolations)] {
		t.Errorf("%s", v)
	}
	if n := len(violations); n > shownViolations {
		t.Errorf("%d violations", n)
	}
	t.Log(summary(history))
	if t.Failed() {
		save(t, history, filepath.Join(folder, "history.jsonl"))
	}
}

func seedOfRun(t *testing.T) uint64 {
	t.Helper()
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED is %q, expected a number", text)
		}
		return seed
	}
	var data [4]byte
	rand.Read(data[:])
	return uint64(binary.BigEndian.Uint32(data[:]))
}

func lengthOfRun(t *testing.T) time.Duration {
	t.Helper()
	if text := os.Getenv("DURATION"); text != "" {
		length, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("DURATION is %q, expected one such as 60s", text)
		}
		return length
	}
	if os.Getenv("SHORT") == "1" {
		return shortLength
	}
	return defaultLength
}

// targets are all that can be broken.
func (f *fleet) targets() []string {
	targets := []string{redisTarget}
	targets = slices.AppendSeq(targets, maps.Keys(f.programs))
	for name := range f.ways {
		targets = append(targets, wayPrefix+name)
	}
	slices.Sort(targets)
	if f.cfg.varied {
		for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
			targets = append(targets, drainPrefix+name, loadPrefix+name)
		}
	}
	for i := range loaders {
		targets = append(targets, loaderName(i))
	}
	return targets
}

func loaderName(i int) string { return "c" + strconv.Itoa(i+1) }

// runFaults runs load and the faults of a plan.
func runFaults(t *testing.T, f *fleet, seed uint64, plan []Breakage, limit time.Duration) (history *History, rested bool) {
	t.Helper()
	return runLoad(t, f, seed, limit, func(ctx context.Context, crash func(client string)) {
		b := &breaker{fleet: f, crash: crash}
		b.run(ctx, plan)
	})
}

// runLoad runs load until meanwhile returns, which breaks things and repairs them. Then it brings
// everything to rest and returns the history; rested is false when something was left at the limit.
func runLoad(t *testing.T, f *fleet, seed uint64, limit time.Duration, meanwhile func(ctx context.Context, crash func(client string))) (history *History, rested bool) {
	t.Helper()
	all, endAll := context.WithCancel(t.Context())
	submit, endSubmit := context.WithCancel(all)
	defer endAll()
	defer endSubmit()

	var next atomic.Int64
	open := &register{}
	clients := map[string]*loader{}
	var loads, lookers sync.WaitGroup
	rate := cmp.Or(f.cfg.rate, jobsASecond)
	if f.cfg.rate == 0 && seed%4 == 1 {
		rate = jobsOverwhelm
	}
	for i := range loaders {
		name := loaderName(i)
		l := newLoader(t, f, name, f.urls("r"+strconv.Itoa(1+i%f.cfg.replicas)), seed*100+uint64(i), &next, open)
		clients[name] = l
		loads.Go(func() { l.run(submit, all, rate/loaders) })
	}
	lookers.Go(func() { f.look(submit, mathrand.New(mathrand.NewPCG(seed, 3)), open) })
	lookers.Go(func() { f.watchSlots(submit) })
	if f.cfg.varied {
		f.startSchedule()
	}

	meanwhile(all, func(name string) { clients[name].crash(all) })
	f.rec.Add(Event{Kind: Fault, Note: "all is mended"})
	endSubmit()
	lookers.Wait()

	f.awaitUp(startLimit)
	if f.cfg.varied {
		f.endSchedule()
	}
	final, rested := f.awaitRest(limit, &loads)
	endAll()
	loads.Wait()
	late, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	f.askAgain(late, open)
	history = f.history()
	history.Final = final
	if f.cfg.varied {
		history.Runs = f.runs()
	}
	return history, rested
}

// awaitRest waits until every client has its answers and nothing is left in Redis, and returns what
// Redis holds then, or when nothing has moved for limit. Looks are counted, so that it does not matter
// how long a busy machine takes for one.
func (f *fleet) awaitRest(limit time.Duration, loads *sync.WaitGroup) (final Final, rested bool) {
	f.t.Helper()
	answered := make(chan struct{})
	go func() { // ends with the loads, which runFaults waits for
		loads.Wait()
		close(answered)
	}()
	begin, moved := time.Now(), ""
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for still := time.Duration(0); !rested && still < limit; still += lookInterval {
		<-tick.C
		left, err := f.read(false)
		if err != nil {
			f.t.Errorf("Redis cannot be read: %v", err)
			break
		}
		rested = len(left.Leftovers) == 0 && isClosed(answered)
		if now := fmt.Sprint(left.Leftovers, f.ends()); now != moved {
			still, moved = 0, now
		}
	}
	f.rec.Add(Event{Kind: Fault, Note: fmt.Sprintf("at rest after %s", time.Since(begin).Round(time.Millisecond))})
	final, err := f.read(true)
	if err != nil {
		f.t.Errorf("Redis cannot be read: %v", err)
	}
	return final, rested
}

// ends is how many handlers have begun, and how many ends clients have learned.
func (f *fleet) ends() (n int) {
	for _, e := range f.rec.Events() {
		if e.Kind == Begun || e.Kind == Learned {
			n++
		}
	}
	return n
}

func (f *fleet) read(records bool) (Final, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), startLimit)
	defer cancel()
	return f.final(ctx, records)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func save(t *testing.T, h *History, name string) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Error(err)
		return
	}
	if err := errors.Join(h.Write(file), file.Close()); err != nil {
		t.Errorf("write the history: %v", err)
	}
}

func count(h *History, kind Kind) (n int) {
	for i := range h.Events {
		if h.Events[i].Kind == kind {
			n++
		}
	}
	return n
}

// summary is what happened in a run, in one line: a run without events would prove nothing.
func summary(h *History) string {
	kinds, states, attempts, faults := map[Kind]int{}, map[freeslot.State]int{}, 0, 0
	rest := "" // the last word on all
	for i := range h.Events {
		e := &h.Events[i]
		kinds[e.Kind]++
		if e.Kind == Learned {
			states[e.State]++
		}
		if e.Kind == Begun && e.Attempt > 1 {
			attempts++
		}
		if e.Kind == Fault && e.Note == "mended" {
			faults++
		}
		if e.Kind == Fault && e.Who == "" {
			rest = e.Note
		}
	}
	return fmt.Sprintf("%d submitted, %d accepted, %d refused, %d unknown; ends %v; %d handlers, %d of them of later attempts, %d aborted; %d looks; %d told; %d runs; %d drains; %d faults; %s",
		kinds[Submitted], kinds[Accepted], kinds[Refused], kinds[Unknown], states, kinds[Begun], attempts, kinds[Aborted], kinds[Looked], kinds[Told], h.Runs, kinds[Drained], faults, rest)
}
