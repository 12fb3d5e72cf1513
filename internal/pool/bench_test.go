package pool

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// BenchmarkFollow is from before the script to the callback of the last of three
// replicas: what is applied alternates.
func BenchmarkFollow(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("pools=%d", n), func(b *testing.B) {
			r := newRig(b, redistest.Shared(b))
			replicas := make([]*replica, 3)
			for i := range replicas {
				replicas[i] = r.follow(Config{Interval: neverCompare})
				receive(b, replicas[i].told, "the first")
			}
			cfgs := [2]*selection.Config{largeConfig(n, 4), largeConfig(n, 5)}
			seen := uint64(0)
			b.ResetTimer()
			for b.Loop() {
				seen = r.apply(seen, cfgs[seen%2]).Version
				for _, f := range replicas {
					<-f.told
				}
			}
		})
	}
}

// BenchmarkCompare is the comparison that each replica makes each second.
func BenchmarkCompare(b *testing.B) {
	for _, labels := range []int{1, 60} {
		cfg := largeConfig(100, labels)
		b.Run(fmt.Sprintf("bytes=%d", len(Encode(cfg))), func(b *testing.B) {
			r := newRig(b, redistest.New(b).Target)
			r.apply(0, cfg)
			f := r.follow(Config{Interval: neverCompare, NoEvents: true})
			if err := r.client.Do(b.Context(), r.client.B().ConfigResetstat().Build()).Error(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := f.Sync(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(r.scriptTime(b), "redis-us/op")
		})
	}
}

// scriptTime is what Redis says that a call of a script took, in microseconds.
func (r *rig) scriptTime(b *testing.B) float64 {
	b.Helper()
	stats, err := r.client.Do(b.Context(), r.client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			_, rest, _ = strings.Cut(rest, "usec_per_call=")
			text, _, _ := strings.Cut(rest, ",")
			us, err := strconv.ParseFloat(text, 64)
			if err != nil {
				b.Fatal(err)
			}
			return us
		}
	}
	b.Fatal("no script was called")
	return 0
}

// largeConfig has n pools, each with a pair of languages and labels of 100 bytes.
func largeConfig(n, labels int) *selection.Config {
	cfg := pools()
	for i := range n {
		p := selection.Pool{
			ID: fmt.Sprint("pool-", i), Services: []string{"asr", "tts"},
			SourceLanguages: []string{"zh", "en"}, TargetLanguages: []string{"de", "fr"}, Labels: map[string]string{},
		}
		for l := range labels {
			p.Labels[fmt.Sprint("label-", l)] = strings.Repeat("x", 90)
		}
		cfg.Pools = append(cfg.Pools, p)
	}
	return cfg
}

// BenchmarkDiff is a dry run for a large fleet.
func BenchmarkDiff(b *testing.B) {
	before, after := largeConfig(100, 1), largeConfig(100, 2)
	var nodes []freeslot.Node
	for i := range 10_000 {
		nodes = append(nodes, freeslot.Node{
			ID: fmt.Sprint("node-", i), MaxConcurrency: 4, Services: []freeslot.Service{{Name: "asr"}, {Name: "tts"}},
			Languages: freeslot.Languages{ASR: []string{"zh"}, TTS: []string{"de"}}, Labels: after.Pools[i%100].Labels,
		})
	}
	for b.Loop() {
		if d := Compare(before, after, nodes); d.Empty() {
			b.Fatal("nothing changes")
		}
	}
}

// BenchmarkDecode is what a replica does with a document that has changed.
func BenchmarkDecode(b *testing.B) {
	content := Encode(largeConfig(100, 4))
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(content); err != nil {
			b.Fatal(err)
		}
	}
}
