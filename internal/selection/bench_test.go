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

var benchSizes = []int{10, 1000, 10000}

func BenchmarkChoose(b *testing.B) {
	for _, size := range benchSizes {
		class := NewClass(benchFleet(size, 1), nil, "tts", &freeslot.Requirement{})
		for _, want := range []int{1, 3} {
			b.Run(fmt.Sprintf("nodes=%d/want=%d", size, want), func(b *testing.B) {
				b.ReportAllocs()
				rnd, dst := NewSource(1), make([]*Node, 0, want)
				for b.Loop() {
					dst = class.Choose(dst[:0], &Query{Want: want}, rnd)
				}
			})
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

func BenchmarkNewClass(b *testing.B) {
	r := &freeslot.Requirement{SourceLanguage: "de-AT", TargetLanguage: "zh-Hant-TW", Labels: map[string]string{"zone": "eu-1"}}
	pools := Pools{
		{ID: "eu", SourceLanguages: []string{"de", "fr"}, TargetLanguages: []string{"zh-Hant"}, Labels: map[string]string{"zone": "eu-1"}},
		{ID: "rest", SourceLanguages: []string{"de", "fr"}, TargetLanguages: []string{"zh-Hant", "en"}},
	}
	for _, size := range benchSizes {
		nodes := benchFleet(size, 1)
		b.Run(fmt.Sprintf("nodes=%d/pools=%d", size, len(pools)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewClass(nodes, enabled(pools), "tts", r)
			}
		})
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
