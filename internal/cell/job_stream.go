package cell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// blockMargin is how much longer than its block a blocking read may take. Without a deadline it
// would wait for a hung server for ever.
const blockMargin = 2 * time.Second

// errReadLate is the reason for giving up a blocking read.
var errReadLate = fmt.Errorf("no answer within the block and %s: %w", blockMargin, context.DeadlineExceeded)

// Dispatches reads the deliveries to a node after the entry after ("" reads from the start), up to
// limit entries (at least 1). It waits up to block for the first one; 0 does not wait. An entry can
// bring several jobs, one after the other under its ID, so there can be more jobs than limit.
// Process all jobs of an entry before you move the position past it. No entries is no error.
// Entries that cannot be read are left out. Errors: *freeslot.Error (invalid_argument), a context
// error, or from Redis.
func (c *Cell) Dispatches(ctx context.Context, node, after string, block time.Duration, limit int) ([]Dispatch, error) {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return nil, err
	}
	for {
		entries, err := c.read(ctx, c.layout.Dispatch(node), after, block, limit)
		if err != nil {
			return nil, fmt.Errorf("read dispatch stream of node %s: %w", node, err)
		}
		out := make([]Dispatch, 0, len(entries))
		for _, e := range entries {
			for one := range parts(e.FieldValues) {
				d, err := decodeDispatch(e.ID, one)
				if err != nil {
					c.log.Warn("dispatch.unreadable", zap.String("node", node), zap.String("entry", e.ID), zap.Error(err))
					continue
				}
				out = append(out, d)
			}
		}
		// The caller's position moves with what it gets, so a read that brought only unreadable
		// entries continues after them.
		if len(out) > 0 || len(entries) == 0 {
			return out, nil
		}
		after = entries[len(entries)-1].ID
	}
}

// Replies reads what was sent to a replica, as Dispatches does for a node. An entry that cannot be
// read is returned with its ID alone.
func (c *Cell) Replies(ctx context.Context, replica, after string, block time.Duration, limit int) ([]Reply, error) {
	if err := validateReplica(replica); err != nil {
		return nil, err
	}
	var out []Reply
	err := c.runner.OneConnection(func(on *script.Conn) error {
		entries, err := c.readOn(ctx, on.Client(), c.layout.Replies(replica), after, block, limit)
		if err != nil {
			return err
		}
		out, err = safe(ctx, c.decodeReplies(replica, entries), on.Confirm)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read replies to %s: %w", replica, err)
	}
	return out, nil
}

// safe returns the replies that may be passed on: all of them, or those before the first end that
// is not confirmed.
func safe(ctx context.Context, replies []Reply, confirm func(context.Context) error) ([]Reply, error) {
	first := slices.IndexFunc(replies, func(r Reply) bool { return r.Partial || r.Status.State.Terminal() })
	if first < 0 {
		return replies, nil
	}
	err := confirm(ctx)
	switch {
	case err == nil:
		return replies, nil
	case first > 0 && errors.Is(err, script.ErrNotReplicated):
		return replies[:first], nil
	default:
		return nil, err
	}
}

func (c *Cell) decodeReplies(replica string, entries []rueidis.XRangeSlice) []Reply {
	out := make([]Reply, 0, len(entries))
	for _, e := range entries {
		for one := range parts(e.FieldValues) {
			if one.get("open") != "" {
				out = append(out, Reply{ID: e.ID})
				continue
			}
			r, err := decodeReply(e.ID, one)
			if err != nil {
				c.log.Warn("reply.unreadable", zap.String("replica", replica), zap.String("entry", e.ID), zap.Error(err))
				r = Reply{ID: e.ID}
			}
			out = append(out, r)
		}
	}
	return out
}

// OpenReplies makes the replica's reply stream: scripts write only to a stream that exists. It
// lives as long as KeepReplies is called at least every 30 s.
func (c *Cell) OpenReplies(ctx context.Context, replica string) error {
	if err := validateReplica(replica); err != nil {
		return err
	}
	if err := c.openStream(ctx, "open_replies", c.layout.Replies(replica)); err != nil {
		return fmt.Errorf("open replies to %s: %w", replica, err)
	}
	return c.KeepReplies(ctx, replica, "")
}

// RepliesLeft returns how long the replica's reply stream lives unless KeepReplies is called; 0 if
// there is none.
func (c *Cell) RepliesLeft(ctx context.Context, replica string) (time.Duration, error) {
	if err := validateReplica(replica); err != nil {
		return 0, err
	}
	ms, err := c.runner.Do(ctx, "open_replies", c.client.B().Pttl().Key(c.layout.Replies(replica)).Build()).AsInt64()
	if err != nil {
		return 0, fmt.Errorf("look for replies to %s: %w", replica, err)
	}
	return time.Duration(max(ms, 0)) * time.Millisecond, nil
}

// KeepReplies renews the stream's TTL and drops entries before trimTo ("" drops none). Errors:
// ErrRepliesGone, or from Redis.
func (c *Cell) KeepReplies(ctx context.Context, replica, trimTo string) error {
	if err := validateReplica(replica); err != nil {
		return err
	}
	there, err := c.keepStream(ctx, "keep_replies", c.layout.Replies(replica), trimTo)
	if err != nil {
		return fmt.Errorf("keep replies to %s: %w", replica, err)
	}
	if !there {
		return ErrRepliesGone
	}
	return nil
}

// CloseReplies deletes the stream. A completion then writes nothing to the replica, which is gone.
func (c *Cell) CloseReplies(ctx context.Context, replica string) error {
	if err := validateReplica(replica); err != nil {
		return err
	}
	del := c.client.B().Del().Key(c.layout.Replies(replica)).Build()
	if err := c.runner.Do(ctx, "close_replies", del).Error(); err != nil {
		return fmt.Errorf("close replies to %s: %w", replica, err)
	}
	return nil
}

// openStream makes a replica's stream, which keepStream keeps alive.
func (c *Cell) openStream(ctx context.Context, operation, key string) error {
	add := c.client.B().Xadd().Key(key).Id("*").FieldValue().FieldValue("open", "1").Build()
	return c.runner.Do(ctx, operation, add).Error()
}

// keepStream renews the TTL of a replica's stream and drops entries before trimTo ("" drops none).
// there is false if the stream is gone.
func (c *Cell) keepStream(ctx context.Context, operation, key, trimTo string) (there bool, err error) {
	if trimTo != "" {
		trim := c.client.B().Xtrim().Key(key).Minid().Threshold(trimTo).Build()
		if err := c.runner.Do(ctx, operation, trim).Error(); err != nil {
			return false, err
		}
	}
	expire := c.client.B().Pexpire().Key(key).Milliseconds(streamTTL.Milliseconds()).Build()
	n, err := c.runner.Do(ctx, operation, expire).AsInt64()
	return n > 0, err
}

func (c *Cell) read(
	ctx context.Context, key, after string, block time.Duration, limit int,
) ([]rueidis.XRangeSlice, error) {
	return c.readOn(ctx, c.client, key, after, block, limit)
}

func (c *Cell) readOn(
	ctx context.Context, on rueidis.Client, key, after string, block time.Duration, limit int,
) ([]rueidis.XRangeSlice, error) {
	if after == "" {
		after = "0"
	}
	// A timer cancels the read, because a context with a deadline makes the client read in a way
	// that no cancellation ends: a stop would wait for the block to pass.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(max(block, 0)+blockMargin, func() { cancel(errReadLate) })
	defer late.Stop()
	streams, err := on.Do(ctx, c.xread(key, after, block, limit)).AsXReadSlices()
	switch {
	case rueidis.IsRedisNil(err):
		return nil, nil
	case err != nil && errors.Is(context.Cause(ctx), errReadLate):
		return nil, errReadLate
	case err != nil:
		return nil, err
	}
	return streams[key], nil
}

func (c *Cell) xread(key, after string, block time.Duration, limit int) rueidis.Completed {
	read := c.client.B().Xread().Count(int64(max(limit, 1)))
	if block <= 0 {
		return read.Streams().Key(key).Id(after).Build()
	}
	// Rounded up, because BLOCK 0 waits for ever.
	return read.Block(max(block.Milliseconds(), 1)).Streams().Key(key).Id(after).Build()
}
