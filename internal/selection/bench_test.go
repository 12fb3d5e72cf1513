package selection

import (
	"fmt"
	"testing"

	"github.com/freeslot/freeslot"
)

// benchFleet returns nodes of four slots each, all seen at 0, used of them taken.
// All have tts; every second has German, every fourth the label.
func benchFleet(count, used int) []*Node {
	nodes := make([]*Node, count)
	for i := range nodes {
		n := &freeslot.Node{
			ID:             fmt.Sprintf("node-%d", i),
			MaxConcurrency: 4,
			Services:       []freeslot.Service{{Name: "asr"}, {Name: "tts"}},
			Languages:      freeslot.Languages{ASR: []string{"en", "fr"}, TTS: []string{"en", "zh-Hant"}},
		}
		if i%2 == 0 {
			n.Languages.ASR = append(n.Languages.ASR, "de")
		}
		if i%4 == 0 {
			n.Labels = map[string]string{"zone": "eu-1"}
		}
		nodes[i] = NewNode(Compile(n), 0)
		nodes[i].Seen(0)
		nodes[i].SetUsed(used)
	}
	return nodes
}

var benchSizes = []int{1000, 10000, 100000}

// The lower bound of a choice: two nodes drawn, one word of each compared.
func BenchmarkBareSampling(b *testing.B) {
	for _, size := range benchSizes {
		nodes := benchFleet(size, 1)
		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) {
			rnd, least := NewSource(1), uint64(0)
			for b.Loop() {
				x, y := nodes[rnd.intn(size)], nodes[rnd.intn(size)]
				least += min(x.slots.Load(), y.slots.Load())
			}
			if least == 0 {
				b.Fatal("idle nodes")
			}
		})
	}
}

func benchChoose(b *testing.B, class *Class, q Query) {
	b.ReportAllocs()
	rnd, dst := NewSource(1), make([]*Node, 0, max(q.Want, 1))
	for b.Loop() {
		if dst = class.Choose(dst[:0], &q, rnd); len(dst) == 0 {
			b.Fatal("none is chosen")
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, size := range benchSizes {
		nodes := benchFleet(size, 1)
		for name, bench := range map[string]struct {
			cfg *Config
			q   Query
		}{
			"want=1":   {nil, Query{}},
			"want=2":   {nil, Query{Want: 2}},
			"want=3":   {nil, Query{Want: 3}},
			"binpack":  {&Config{Policy: PolicyBinpack}, Query{}},
			"affinity": {nil, Query{AffinityKey: "session-4711"}},
		} {
			class := NewClass(nodes, bench.cfg, "tts", nothing)
			b.Run(fmt.Sprintf("nodes=%d/%s", size, name), func(b *testing.B) { benchChoose(b, class, bench.q) })
		}
	}
}

// A batch of 64 jobs.
func BenchmarkBatch(b *testing.B) {
	for _, slots := range []int{4, 16, 1024} {
		class := NewClass(testFleet(1000, slots), nil, "tts", nothing)
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			b.ReportAllocs()
			rnd, dst := NewSource(1), make([]Group, 0, MaxBatch+1)
			for b.Loop() {
				if len(class.Batch(dst, MaxBatch, &Query{Want: 2}, rnd)) == 0 {
					b.Fatal("none is chosen")
				}
			}
		})
	}
}

// One cell costs nothing; several cost one look at a node, or some more.
func BenchmarkChooseCell(b *testing.B) {
	for _, cells := range []int{1, 4, 16} {
		for _, used := range []int{1, 3} {
			nodes := cellFleet(10000, cells, 4)
			for _, n := range nodes {
				n.SetUsed(used)
			}
			class := NewClass(nodes, nil, "tts", nothing)
			b.Run(fmt.Sprintf("cells=%d/used=%d", cells, used), func(b *testing.B) { benchChoose(b, class, Query{}) })
		}
	}
}

// The dearest case: the whole fleet is full.
func BenchmarkChooseFull(b *testing.B) {
	for _, size := range benchSizes {
		class := NewClass(benchFleet(size, 4), nil, "tts", &freeslot.Requirement{})
		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			rnd, dst := NewSource(1), make([]*Node, 0, 1)
			for b.Loop() {
				dst = class.Choose(dst[:0], &Query{}, rnd)
			}
		})
	}
}

// What a replica does for each job: choose, take, confirm.
func BenchmarkChooseTakeConfirm(b *testing.B) {
	class := NewClass(benchFleet(1000, 1), nil, "tts", &freeslot.Requirement{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		rnd, dst := NewSource(1), make([]*Node, 0, 3)
		for pb.Next() {
			dst = class.Choose(dst[:0], &Query{Want: 3}, rnd)
			if dst[0].TryTake(1) {
				dst[0].Confirm(1, 1)
			}
		}
	})
}

// pools=2 is compared pool by pool, pools=100 by the memberships that the profile keeps.
func BenchmarkNewClass(b *testing.B) {
	r := &freeslot.Requirement{SourceLanguage: "de-AT", TargetLanguage: "zh-Hant-TW", Labels: map[string]string{"zone": "eu-1"}}
	for _, count := range []int{2, 100} {
		cfg := &Config{Enabled: true}
		for i := range count {
			p := Pool{ID: fmt.Sprintf("pool-%d", i), SourceLanguages: []string{"de", "fr"}, TargetLanguages: []string{"zh-Hant"}}
			if i < count-1 {
				p.Labels = map[string]string{"zone": fmt.Sprintf("eu-%d", i+1)}
			}
			cfg.Pools = append(cfg.Pools, p)
		}
		for _, size := range benchSizes[:2] {
			nodes := benchFleet(size, 1)
			NewClass(nodes, cfg, "tts", r)
			b.Run(fmt.Sprintf("nodes=%d/pools=%d", size, count), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					NewClass(nodes, cfg, "tts", r)
				}
			})
		}
	}
}

func BenchmarkProfileMatch(b *testing.B) {
	p := benchFleet(1, 0)[0].Profile()
	r := &freeslot.Requirement{SourceLanguage: "de-AT", TargetLanguage: "zh-Hant-TW"}
	b.ReportAllocs()
	for b.Loop() {
		p.Match(nil, "tts", r)
	}
}

func BenchmarkBreakdown(b *testing.B) {
	for _, size := range benchSizes {
		class := NewClass(benchFleet(size, 4), nil, "tts", &freeslot.Requirement{})
		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				class.Breakdown(&Query{})
			}
		})
	}
}
