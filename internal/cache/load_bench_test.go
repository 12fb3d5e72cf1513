package cache

import (
	"fmt"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// BenchmarkLoad is what a replica does before it serves: everything, from Redis.
func BenchmarkLoad(b *testing.B) {
	const nodes = 10_000
	redis := redistest.Shared(b)
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: redis.Prefix(b)}}, redis.Client(b), zap.NewNop(), nil)
	if err != nil {
		b.Fatal(err)
	}
	const writers = 100 // at once, which share round trips
	var registered sync.WaitGroup
	for w := range writers {
		registered.Go(func() {
			for i := w; i < nodes; i += writers {
				n := freeslot.Node{
					ID: fmt.Sprintf("node-%d", i), MaxConcurrency: 4,
					Services:  []freeslot.Service{{Name: "asr", Version: "1.2.3"}, {Name: "tts", Version: "2.0.0"}},
					Languages: freeslot.Languages{ASR: []string{"en", "fr", "de"}, TTS: []string{"en", "zh-Hant"}},
					Pools:     []string{fmt.Sprintf("pool-%d", i%100)}, Labels: map[string]string{"zone": "eu-1", "gpu": "a100"},
				}
				if _, err := c.Register(b.Context(), n, cell.NewEpoch()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	registered.Wait()
	for b.Loop() {
		ca := New(Config{}, []Feed{{Source: c}}, zap.NewNop(), nil)
		if err := ca.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		if ca.Size() != nodes {
			b.Fatalf("%d nodes", ca.Size())
		}
		if err := ca.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
