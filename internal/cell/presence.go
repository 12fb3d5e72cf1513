package cell

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Present says that a replica is there, for as long as limit, and returns the names of
// all that are, sorted. It may be repeated. Errors: what Redis said.
func (c *Cell) Present(ctx context.Context, replica string, limit time.Duration) ([]string, error) {
	return c.presence(ctx, replica, limit, "1")
}

// Leave says that a replica is there no longer. It may be repeated. Errors: what Redis
// said; the replica then counts as there until the limit has passed.
func (c *Cell) Leave(ctx context.Context, replica string, limit time.Duration) error {
	_, err := c.presence(ctx, replica, limit, "0")
	return err
}

func (c *Cell) presence(ctx context.Context, replica string, limit time.Duration, stays string) ([]string, error) {
	args := []string{replica, strconv.FormatInt(limit.Milliseconds(), 10), stays}
	names, err := c.runner.Call(ctx, c.scripts["presence"], []string{c.layout.Replicas()}, args).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("presence of replica %s: %w", replica, err)
	}
	slices.Sort(names)
	return names, nil
}
