package cache

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

var mixTags = []string{"de", "en", "es", "fr", "it", "ja", "ko", "pt-BR", "ru", "zh-Hant"}

func mixPair(i int) (string, string) {
	n := len(mixTags)
	return mixTags[i%n], mixTags[(i%n+1+i/n%(n-1))%n]
}

// mixCache is a fleet of 100 pools, each with a language pair.
func mixCache(nodes int) *Cache {
	cfg := &selection.Config{Enabled: true, Mode: selection.ModeTwoLevel}
	for i := range 100 {
		source, target := mixPair(i)
		cfg.Pools = append(cfg.Pools, selection.Pool{ID: fmt.Sprintf("pool-%d", i), SourceLanguages: []string{source}, TargetLanguages: []string{target}})
	}
	c := New(Config{Selection: cfg}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
	for i := range nodes {
		source, target := mixPair(i % 100)
		n := freeslot.Node{
			ID: fmt.Sprintf("node-%d", i), MaxConcurrency: 64,
			Services:  []freeslot.Service{{Name: "translate"}, {Name: "asr"}, {Name: "tts"}},
			Languages: freeslot.Languages{ASR: []string{source, "nl"}, TTS: []string{target, "nl"}},
			Pools:     []string{fmt.Sprintf("pool-%d", i%100)},
			Labels:    map[string]string{"zone": fmt.Sprintf("eu-%d", i%3)},
		}
		c.followers[0].put(&cell.NodeState{Node: n, Epoch: "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", Status: freeslot.StatusOnline, Used: i % 4})
		node, _ := c.Node(n.ID)
		node.Seen(c.Now())
	}
	return c
}

func mixRequirements(kinds ...int) []freeslot.Requirement {
	random, own := rand.New(rand.NewPCG(1, 2)), strings.Clone
	out := make([]freeslot.Requirement, 1024)
	for i := range out {
		pool := random.IntN(100)
		id := own(fmt.Sprintf("pool-%d", pool))
		switch kinds[i%len(kinds)] {
		case 0:
			out[i] = freeslot.Requirement{Pool: id}
		case 1:
			source, target := mixPair(pool)
			out[i] = freeslot.Requirement{SourceLanguage: own(source), TargetLanguage: own(target)}
		default:
			out[i] = freeslot.Requirement{Pool: id, Services: []string{own("asr")}, Labels: map[string]string{own("zone"): own(fmt.Sprintf("eu-%d", random.IntN(3)))}}
		}
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// BenchmarkMix is what clients ask for, each with strings of its own, as if it had just
// been read: of ten, four name a pool, three a language pair, three a pool, a service
// and a label. A single requirement that is asked for again and again costs half.
func BenchmarkMix(b *testing.B) {
	const nodes = 10_000
	c := mixCache(nodes)
	for _, mix := range []struct {
		name  string
		kinds []int
	}{{"mix", []int{0, 0, 0, 0, 1, 1, 1, 2, 2, 2}}, {"pool", []int{0}}, {"pair", []int{1}}, {"labels", []int{2}}} {
		b.Run(fmt.Sprintf("requirements=%s/nodes=%d", mix.name, nodes), func(b *testing.B) {
			asked, random, q := mixRequirements(mix.kinds...), selection.NewSource(1), selection.Query{SilenceLimit: c.SilenceLimit()}
			for i := range asked {
				c.Class("translate", &asked[i]) // builds its list
			}
			var room [1]*selection.Node
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if len(c.Class("translate", &asked[i%len(asked)]).Choose(room[:0], &q, random)) == 0 {
					b.Fatal("none is chosen")
				}
			}
		})
	}
}
