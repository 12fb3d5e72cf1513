package redistest

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// Await checks this often, for about a minute. A check that a busy machine delays counts once.
const (
	awaitCheck  = 20 * time.Millisecond
	awaitChecks = int(waittest.Limit / awaitCheck)
)

// A connection of rueidis takes 1 MiB of buffers and a ring of 1,024 calls unless told otherwise.
// Tests open thousands, and the race detector follows each byte.
const (
	connBuffer = 8 << 10
	connRing   = 6 // 64 calls
)

// frugal spares memory. Benchmarks get what production has.
func frugal(tb testing.TB, o *rueidis.ClientOption) {
	if _, measures := tb.(*testing.B); measures {
		return
	}
	o.ReadBufferEachConn, o.WriteBufferEachConn, o.RingScaleEachConn = connBuffer, connBuffer, connRing
}

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
	option := rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true, DisableRetry: true, ForceSingleClient: true,
	}
	frugal(nil, &option)
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

// Await waits until cond returns true, for conditions that Redis does not signal. cond gets a
// context for its calls. It is for helpers that return an error; a test calls waittest.Until.
func Await(cond func(context.Context) bool) error {
	for checks := 0; !check(cond); checks++ {
		if checks == awaitChecks {
			return fmt.Errorf("not within %d checks", checks)
		}
		time.Sleep(awaitCheck)
	}
	return nil
}

func check(cond func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return cond(ctx)
}
