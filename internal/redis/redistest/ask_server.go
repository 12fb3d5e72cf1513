package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// awaitCheck is how often Await checks.
const awaitCheck = 20 * time.Millisecond

// Ask sends one command to the server at addr, once, on a connection of its own, because servers
// come and go in tests. ctx bounds it.
func Ask(ctx context.Context, addr string, command ...string) rueidis.RedisResult {
	c, err := connect(ctx, addr)
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	defer c.Close()
	return c.Do(ctx, c.B().Arbitrary(command...).Build())
}

func connect(ctx context.Context, addr string) (rueidis.Client, error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, DisableRetry: true, ForceSingleClient: true}
	if end, limited := ctx.Deadline(); limited {
		limit := max(time.Until(end), time.Millisecond) // 0 means the default
		option.ConnWriteTimeout, option.Dialer = limit, net.Dialer{Timeout: limit}
	}
	c, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", addr, err)
	}
	return c, nil
}

// Await waits until cond returns true, for conditions of which Redis gives no signal. cond gets a
// context that ends with the wait.
func Await(cond func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(awaitCheck)
	defer tick.Stop()
	for !cond(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("not within " + startLimit.String())
		}
	}
	return nil
}
