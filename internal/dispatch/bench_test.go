package dispatch

import (
	"fmt"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// BenchmarkSubmit is one client that submits one job after another, on one server.
func BenchmarkSubmit(b *testing.B) {
	for _, cells := range []int{1, 4} {
		for _, batch := range []int{1, 16} {
			b.Run(fmt.Sprintf("cells=%d/batch=%d", cells, batch), func(b *testing.B) {
				r := newCells(b, cells, redistest.Shared(b))
				for i := range r.layouts {
					for _, n := range r.nodesIn(i, 40/cells, 60_000) {
						r.agent(n)
					}
				}
				rep := r.replica("r1")
				reqs := make([]Request, batch)
				for i := range reqs {
					reqs[i] = Request{Tenant: tenant, Job: job()}
				}
				ctx := b.Context()
				accepted := func(_ int, _ Accepted, err error) {
					if err != nil {
						b.Error(err)
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					rep.Submit(ctx, reqs, nil, accepted)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/job")
			})
		}
	}
}

// BenchmarkChoose is the part of a submit that only reads memory.
func BenchmarkChoose(b *testing.B) {
	for _, cells := range []int{1, 4} {
		b.Run(fmt.Sprintf("cells=%d", cells), func(b *testing.B) {
			r := newCells(b, cells, redistest.Shared(b))
			for i := range r.layouts {
				for _, n := range r.nodesIn(i, 1000/cells, 8) {
					r.agent(n)
				}
			}
			rep := r.replica("r1")
			p := &placement{request: Request{Tenant: tenant, Job: job()}}
			b.ReportAllocs()
			for b.Loop() {
				if err := rep.chooseNode(p); err != nil {
					b.Fatal(err)
				}
				p.giveBack()
			}
		})
	}
}

// BenchmarkChooseAlone is a choice for a job that comes alone, with others under way or not.
func BenchmarkChooseAlone(b *testing.B) {
	for _, used := range []int{0, 6, 10, 13} {
		for _, others := range []int64{1, 16, 64} {
			b.Run(fmt.Sprintf("used=%d/under_way=%d", used, others), func(b *testing.B) {
				r := newRig(b, redistest.Shared(b))
				for i := range 100 {
					r.agent(node(fmt.Sprintf("n%d", i), 16))
				}
				rep := r.replica("r1", blind)
				for _, n := range rep.cache.AllNodes() {
					n.SetUsed(used)
				}
				rep.submits.Store(others)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						p := &placement{request: Request{Tenant: tenant, Job: job()}}
						rep.chooseAlike([]*placement{p})
						if err := rep.chooseNode(p); err != nil {
							b.Error(err)
							return
						}
						p.giveBack()
					}
				})
			})
		}
	}
}
