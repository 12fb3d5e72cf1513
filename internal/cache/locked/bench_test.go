package locked

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const benchPools = 100

func benchNode(i int) *cell.NodeState {
	n := freeslot.Node{
		ID: fmt.Sprintf("node-%d", i), MaxConcurrency: 4,
		Services:  []freeslot.Service{{Name: "asr"}, {Name: "tts"}},
		Languages: freeslot.Languages{ASR: []string{"en", "fr"}, TTS: []string{"en", "zh-Hant"}},
		Pools:     []string{fmt.Sprintf("pool-%d", i%benchPools)},
	}
	return &cell.NodeState{Node: n, Epoch: "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", Status: freeslot.StatusOnline, Used: 1}
}

// benchFleets are pictures of a fleet of which every node has been seen. They are made
// once for all benchmarks, with their lists: a list takes a match per node.
func benchFleets(nodes int) map[string]Nodes {
	if made[nodes] == nil {
		made[nodes] = makeFleets(nodes)
	}
	return made[nodes]
}

var made = make(map[int]map[string]Nodes)

// makeFleets gives the State one snapshot: it would copy all that it has for each node.
func makeFleets(nodes int) map[string]Nodes {
	state, plain := New(Config{}), NewPlain(Config{})
	snap := &Snapshot{nodes: make(map[string]*view, nodes), config: state.management.config, profiles: 1}
	for i := range nodes {
		s := benchNode(i)
		p := prepare(s, nil)
		state.management.put(&p, 1)
		snap.nodes[s.Node.ID] = state.management.view(s.Node.ID)
		snap.nodes[s.Node.ID].node.Seen(0)
		plain.Put(s)
		plain.Heartbeat(s.Node.ID, 1, freeslot.StatusOnline, 0, "")
	}
	state.snapshots.swap(snap)
	return map[string]Nodes{"state": state, "plain": plain}
}

var benchSizes = []int{1000, 10_000}

// chooser is one choice of two candidates in one pool after the other. All lists have
// been built.
func chooser(n Nodes) func() int {
	rnd, room, i := selection.NewSource(1), make([]*selection.Node, 0, 2), 0
	requirements := make([]freeslot.Requirement, benchPools)
	for i := range requirements {
		requirements[i].Pool = fmt.Sprintf("pool-%d", i)
	}
	q := &selection.Query{Want: 2}
	for i := range requirements {
		n.Choose(room, "tts", &requirements[i], q, rnd)
	}
	return func() int {
		if i++; i == benchPools {
			i = 0
		}
		return len(n.Choose(room, "tts", &requirements[i], q, rnd))
	}
}

// BenchmarkChoose is a choice from a raw requirement while nothing changes.
func BenchmarkChoose(b *testing.B) {
	for _, nodes := range benchSizes {
		for name, n := range benchFleets(nodes) {
			b.Run(fmt.Sprintf("%s/nodes=%d/pools=%d", name, nodes, benchPools), func(b *testing.B) {
				b.ReportAllocs()
				choose := chooser(n)
				for b.Loop() {
					if choose() != 2 {
						b.Fatal("nothing to choose")
					}
				}
			})
		}
	}
}

// BenchmarkChooseWhileBeating is the same while heartbeats come at a rate; applied/s
// is the rate that was reached.
func BenchmarkChooseWhileBeating(b *testing.B) {
	const nodes, rate = 10_000, 20_000
	for name, n := range benchFleets(nodes) {
		b.Run(fmt.Sprintf("%s/nodes=%d/rate=%d", name, nodes, rate), func(b *testing.B) {
			choose, stop := chooser(n), make(chan struct{})
			var beating sync.WaitGroup
			applied, began := 0, time.Now()
			beating.Go(func() { applied = beat(n, nodes, rate, stop) })
			for b.Loop() {
				choose()
			}
			close(stop)
			beating.Wait()
			b.ReportMetric(float64(applied)/time.Since(began).Seconds(), "applied/s")
		})
	}
}

// beat applies heartbeats at a rate, or as fast as it can where that is slower.
func beat(n Nodes, nodes, rate int, stop <-chan struct{}) (applied int) {
	ids := names("node-", nodes)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; {
		select {
		case <-tick.C:
		case <-stop:
			return applied
		}
		for due := int(time.Since(begin).Seconds() * float64(rate)); applied < due; applied++ {
			if closed(stop) {
				return applied // far behind what is due, it would go on for long
			}
			n.Heartbeat(ids[applied*7919%nodes], applied%4, freeslot.StatusOnline, int64(applied), `{"cpu":0.5}`)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// BenchmarkHeartbeat is the highest rate of one goroutine; a State's further ones
// would wait for it.
func BenchmarkHeartbeat(b *testing.B) {
	for _, nodes := range benchSizes {
		ids := names("node-", nodes)
		for name, n := range benchFleets(nodes) {
			b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					n.Heartbeat(ids[i*7919%nodes], i%4, freeslot.StatusOnline, int64(i), `{"cpu":0.5}`)
					i++
				}
			})
		}
	}
}

// BenchmarkCopy is the copy of a snapshot alone, and what a slice would cost in the
// map's place.
func BenchmarkCopy(b *testing.B) {
	for _, nodes := range benchSizes {
		of := make(map[string]*view, nodes)
		for i := range nodes {
			of[fmt.Sprintf("node-%d", i)] = new(view)
		}
		b.Run(fmt.Sprintf("map/nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				copied := maps.Clone(of)
				runtime.KeepAlive(copied)
			}
		})
		list := slices.Collect(maps.Values(of))
		b.Run(fmt.Sprintf("slice/nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				copied := slices.Clone(list)
				runtime.KeepAlive(copied)
			}
		})
	}
}
