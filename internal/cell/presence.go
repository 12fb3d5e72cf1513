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
	return c.presentAs(ctx, c.layout.Replicas(), replica, limit, stays)
}

func (c *Cell) presentAs(ctx context.Context, key, replica string, limit time.Duration, stays string) ([]string, error) {
	args := []string{replica, strconv.FormatInt(limit.Milliseconds(), 10), stays}
	names, err := c.exec(ctx, "presence", c.scripts.presence, []string{key}, args).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("presence of replica %s: %w", replica, err)
	}
	slices.Sort(names)
	return names, nil
}

// Movers are the replicas that can follow jobs from cell to cell, announced beside the others:
// older releases do not.
type Movers struct{ cell *Cell }

// Movers is where replicas announce that.
func (c *Cell) Movers() Movers { return Movers{c} }

// Present is as [Cell.Present].
func (m Movers) Present(ctx context.Context, replica string, limit time.Duration) ([]string, error) {
	return m.cell.presentAs(ctx, m.cell.layout.Movers(), replica, limit, "1")
}

// Leave is as [Cell.Leave].
func (m Movers) Leave(ctx context.Context, replica string, limit time.Duration) error {
	_, err := m.cell.presentAs(ctx, m.cell.layout.Movers(), replica, limit, "0")
	return err
}
