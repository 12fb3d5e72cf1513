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

// benchFleet is a copy of a fleet whose nodes have all been seen. It is made once for all
// benchmarks, with its lists: a list takes a match for each node. It gets one snapshot, because Put
// would copy the whole map for each node.
func benchFleet(nodes int) *State {
	if made[nodes] != nil {
		return made[nodes]
	}
	state := New(Config{})
	snap := &Snapshot{nodes: make(map[string]*record, nodes), config: state.config, profiles: 1}
	for i := range nodes {
		s := benchNode(i)
		state.put(s, profileChange(s, nil))
		published := *state.nodes[s.Node.ID]
		snap.nodes[s.Node.ID] = &published
		published.node.Seen(0)
	}
	state.snapshots.swap(snap)
	made[nodes] = state
	return state
}

var made = make(map[int]*State)

var benchSizes = []int{1000, 10_000}

// chooser is one choice of two candidates in one pool after the other. All lists have been built.
func chooser(s *State) func() int {
	rnd, room, i := selection.NewSource(1), make([]*selection.Node, 0, 2), 0
	requirements := make([]freeslot.Requirement, benchPools)
	for i := range requirements {
		requirements[i].Pool = fmt.Sprintf("pool-%d", i)
	}
	q := &selection.Query{Want: 2}
	for i := range requirements {
		s.Class("tts", &requirements[i]).Choose(room, q, rnd)
	}
	return func() int {
		if i++; i == benchPools {
			i = 0
		}
		return len(s.Class("tts", &requirements[i]).Choose(room, q, rnd))
	}
}

// BenchmarkChoose is a choice from a raw requirement while nothing changes.
func BenchmarkChoose(b *testing.B) {
	for _, nodes := range benchSizes {
		b.Run(fmt.Sprintf("nodes=%d/pools=%d", nodes, benchPools), func(b *testing.B) {
			b.ReportAllocs()
			choose := chooser(benchFleet(nodes))
			for b.Loop() {
				if choose() != 2 {
					b.Fatal("nothing to choose")
				}
			}
		})
	}
}

// BenchmarkChooseWhileBeating is the same while heartbeats come at a rate; applied/s
// is the rate that was reached.
func BenchmarkChooseWhileBeating(b *testing.B) {
	const nodes, rate = 10_000, 20_000
	b.Run(fmt.Sprintf("nodes=%d/rate=%d", nodes, rate), func(b *testing.B) {
		s := benchFleet(nodes)
		choose, stop := chooser(s), make(chan struct{})
		var beating sync.WaitGroup
		applied, began := 0, time.Now()
		beating.Go(func() { applied = beat(s, nodes, rate, stop) })
		for b.Loop() {
			choose()
		}
		close(stop)
		beating.Wait()
		b.ReportMetric(float64(applied)/time.Since(began).Seconds(), "applied/s")
	})
}

// beat applies heartbeats at a rate, or as fast as it can where that is slower.
func beat(s *State, nodes, rate int, stop <-chan struct{}) (applied int) {
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
				return applied // far behind the rate it would go on for long
			}
			s.Heartbeat(ids[applied*7919%nodes], applied%4, freeslot.StatusOnline, int64(applied), `{"cpu":0.5}`)
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

// BenchmarkHeartbeat is the highest rate of one goroutine; further ones would wait for it.
func BenchmarkHeartbeat(b *testing.B) {
	for _, nodes := range benchSizes {
		ids, s := names("node-", nodes), benchFleet(nodes)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s.Heartbeat(ids[i*7919%nodes], i%4, freeslot.StatusOnline, int64(i), `{"cpu":0.5}`)
				i++
			}
		})
	}
}

// BenchmarkCopy is the copy of a snapshot alone, and what a slice would cost in the
// map's place.
func BenchmarkCopy(b *testing.B) {
	for _, nodes := range benchSizes {
		of := make(map[string]*record, nodes)
		for i := range nodes {
			of[fmt.Sprintf("node-%d", i)] = new(record)
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
