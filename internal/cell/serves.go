package cell

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// ConfigSeen is ConfigTold of a version without a generation.
func (c *Cell) ConfigSeen(ctx context.Context, version uint64) error {
	_, err := c.ConfigTold(ctx, version, "")
	return err
}

// ConfigTold tells the cell the version of the pools' configuration that nodes are chosen
// by, and the generation of its counter, "" for none. It returns false where a newer version of that
// generation was told before, which then goes on to count. Errors: what Redis said.
func (c *Cell) ConfigTold(ctx context.Context, version uint64, generation string) (bool, error) {
	keys := []string{c.layout.ServesVersion(), c.layout.ServesGeneration()}
	counts, err := c.runner.Call(ctx, c.scripts["serves"], keys, []string{strconv.FormatUint(version, 10), generation}).AsInt64()
	if err != nil {
		return false, fmt.Errorf("tell version of the configuration: %w", err)
	}
	return counts == 1, nil
}

// Served reports whether a replica has ever looked after the cell, which all do within a second of their start.
// Errors: what Redis said.
func (c *Cell) Served(ctx context.Context) (bool, error) {
	err := c.runner.Do(ctx, "check", c.client.B().Get().Key(c.layout.ServesVersion()).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether the cell is served: %w", err)
	}
	return true, nil
}
