package pick

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/registry"
)

// BenchmarkPick picks while a consumer hands out a new list each 10 ms, with ten instances
// registered or gone in it: 1,000 changes/s.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1000, 100000} {
		for _, policy := range policies {
			for _, weights := range []string{"equal", "mixed"} {
				if weights == "mixed" && (policy == Random || policy == RoundRobin) {
					continue
				}
				b.Run(fmt.Sprintf("instances=%d/policy=%s/weights=%s", n, policy, weights), func(b *testing.B) {
					instances := fleet(n)
					for i := range instances {
						if weights == "mixed" {
							instances[i].Weight = float64(1 + i%4)
						}
					}
					p, stop := churn(instances, Config{Policy: policy})
					defer stop()
					keys := make([]string, 1024)
					for i := range keys {
						keys[i] = fmt.Sprint("session-", i)
					}
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						picked, err := p.Pick(b.Context(), keys[i%len(keys)])
						if err != nil {
							b.Fatal(err)
						}
						picked.Done(nil)
					}
				})
			}
		}
	}
}

// churn returns a picker over lists that change until stop is called.
func churn(instances []*registry.Instance, cfg Config) (p *Picker, stop func()) {
	var list atomic.Pointer[registry.List]
	list.Store(&registry.List{Service: "asr", Instances: instances})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for from := 0; ; from = (from + 1) % (len(instances) / 100) {
			select {
			case <-done:
				return
			case <-ticker.C:
				next := slices.Clone(instances)
				for k := 10; k > 0; k-- {
					at := from + k*len(instances)/11
					next = slices.Delete(next, at, at+1)
				}
				list.Store(&registry.List{Service: "asr", Instances: next})
			}
		}
	})
	p = New(cfg, source{&list})
	p.current()
	return p, func() { close(done); wg.Wait() }
}

// BenchmarkPrepare prepares a list of which ten instances have changed.
func BenchmarkPrepare(b *testing.B) {
	for _, policy := range []Policy{Random, Weighted, ConsistentHash} {
		b.Run(fmt.Sprintf("instances=100000/policy=%s", policy), func(b *testing.B) {
			instances := fleet(100000)
			for i := range instances {
				instances[i].Weight = float64(1 + i%4)
			}
			p := New(Config{Policy: policy}, source{new(atomic.Pointer[registry.List])})
			even := p.prepare(&registry.List{Instances: instances}, nil)
			odd := &registry.List{Instances: slices.Delete(slices.Clone(instances), 500, 510)}
			b.ReportAllocs()
			for b.Loop() {
				p.prepare(odd, even)
			}
		})
	}
}
