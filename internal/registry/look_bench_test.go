package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// BenchmarkLook is one call for 20 services of 20 instances, and for 256.
func BenchmarkLook(b *testing.B) {
	redis := redistest.Shared(b)
	w := newWriter(b, redis, redis.Prefix(b))
	for i := range lookServices {
		w.register(fmt.Sprintf("s%d", i), "e1", ids(20))
	}
	for _, services := range []int{20, lookServices} {
		for _, history := range []bool{false, true} {
			b.Run(fmt.Sprintf("services=%d/history=%t", services, history), func(b *testing.B) {
				items := make([]lookItem, services)
				for i := range items {
					items[i] = lookItem{service: fmt.Sprintf("s%d", i), timeout: time.Minute}
				}
				ctx := b.Context()
				for b.Loop() {
					if _, err := w.conn.lookOnce(ctx, history, items); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
