package client

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/freeslot/freeslot/internal/redis/redistest"
)

// TestGatewayReads: each agent has a blocking read, and rueidis' own limit is 1,024.
func TestGatewayReads(t *testing.T) {
	t.Parallel()
	const agents = 1100
	redis := redistest.New(t)
	admin := redis.Client(t)
	client := open(t, Gateway(agents), Config{URL: redis.URL(), Name: "gateway"})
	ctx, cancel := context.WithCancel(t.Context()) // with a deadline rueidis would wait for that
	var reads sync.WaitGroup
	defer reads.Wait()
	defer cancel()
	for range agents {
		reads.Go(func() {
			_ = client.Do(ctx, client.B().Xread().Block(0).Streams().Key("none").Id("$").Build()).Error() // ends with ctx
		})
	}
	blocked := 0
	if err := redistest.Await(func(context.Context) bool {
		blocked = 0
		for _, line := range listed(t, admin, "gateway") {
			if strings.Contains(line, " flags=b ") {
				blocked++
			}
		}
		return blocked == agents
	}); err != nil {
		t.Errorf("%d reads are under way: %v", blocked, err)
	}
}
