package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// blockMargin is how much longer than the block itself a blocking read may take:
// without a deadline it would wait for a hung server for ever.
const blockMargin = 2 * time.Second

// Dispatches reads what was delivered to a node behind the entry after ("" reads
// from the start), waiting up to block for it. No entries is no error.
func (c *Cell) Dispatches(ctx context.Context, node, after string, block time.Duration, limit int) ([]Dispatch, error) {
	entries, err := c.read(ctx, c.layout.Dispatch(node), after, block, limit)
	if err != nil {
		return nil, fmt.Errorf("read dispatch stream of node %s: %w", node, err)
	}
	out := make([]Dispatch, 0, len(entries))
	for _, e := range entries {
		d, err := decodeDispatch(e)
		if err != nil {
			return nil, fmt.Errorf("dispatch entry %s of node %s: %w", e.ID, node, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// Replies reads what was sent to a replica; as Dispatches.
func (c *Cell) Replies(ctx context.Context, replica, after string, block time.Duration, limit int) ([]Reply, error) {
	entries, err := c.read(ctx, c.layout.Replies(replica), after, block, limit)
	if err != nil {
		return nil, fmt.Errorf("read replies to %s: %w", replica, err)
	}
	out := make([]Reply, 0, len(entries))
	for _, e := range entries {
		if e.FieldValues["j"] == "" {
			out = append(out, Reply{ID: e.ID}) // the entry that opened the stream
			continue
		}
		r, err := decodeReply(e)
		if err != nil {
			return nil, fmt.Errorf("reply %s to %s: %w", e.ID, replica, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// OpenReplies makes the replica's reply stream: scripts write only to one that
// exists. It lives on while KeepReplies is called more often than every 30 s.
func (c *Cell) OpenReplies(ctx context.Context, replica string) error {
	key := c.layout.Replies(replica)
	add := c.client.B().Xadd().Key(key).Id("*").FieldValue().FieldValue("open", "1").Build()
	if err := c.do(ctx, "open_replies", add).Error(); err != nil {
		return fmt.Errorf("open replies to %s: %w", replica, err)
	}
	return c.KeepReplies(ctx, replica, "")
}

// KeepReplies renews the stream's TTL and drops entries before trimTo ("" drops
// none). Errors: ErrRepliesGone, else what Redis said.
func (c *Cell) KeepReplies(ctx context.Context, replica, trimTo string) error {
	key := c.layout.Replies(replica)
	if trimTo != "" {
		trim := c.client.B().Xtrim().Key(key).Minid().Threshold(trimTo).Build()
		if err := c.do(ctx, "keep_replies", trim).Error(); err != nil {
			return fmt.Errorf("trim replies to %s: %w", replica, err)
		}
	}
	expire := c.client.B().Pexpire().Key(key).Milliseconds(replyTTL.Milliseconds()).Build()
	n, err := c.do(ctx, "keep_replies", expire).AsInt64()
	if err != nil {
		return fmt.Errorf("keep replies to %s: %w", replica, err)
	}
	if n == 0 {
		return ErrRepliesGone
	}
	return nil
}

// CloseReplies deletes the stream: whoever completes a job from now on writes
// nothing to a replica that is gone.
func (c *Cell) CloseReplies(ctx context.Context, replica string) error {
	if err := c.do(ctx, "close_replies", c.client.B().Del().Key(c.layout.Replies(replica)).Build()).Error(); err != nil {
		return fmt.Errorf("close replies to %s: %w", replica, err)
	}
	return nil
}

func (c *Cell) read(ctx context.Context, key, after string, block time.Duration, limit int) ([]rueidis.XRangeEntry, error) {
	if after == "" {
		after = "0"
	}
	ctx, cancel := context.WithTimeout(ctx, block+blockMargin)
	defer cancel()
	cmd := c.client.B().Xread().Count(int64(limit)).Block(block.Milliseconds()).Streams().Key(key).Id(after).Build()
	streams, err := c.client.Do(ctx, cmd).AsXRead()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return streams[key], nil
}

func decodeDispatch(e rueidis.XRangeEntry) (Dispatch, error) {
	n, err := strconv.Atoi(e.FieldValues["a"])
	if err != nil {
		return Dispatch{}, fmt.Errorf("attempt: %w", err)
	}
	d := Dispatch{
		ID: e.ID, Attempt: Attempt{Job: e.FieldValues["j"], N: n},
		Cancel: e.FieldValues["c"] != "", Tenant: e.FieldValues["t"],
	}
	if spec := e.FieldValues["s"]; spec != "" {
		d.Job = new(freeslot.Job)
		if err := json.Unmarshal([]byte(spec), d.Job); err != nil {
			return Dispatch{}, fmt.Errorf("spec: %w", err)
		}
	}
	return d, nil
}

func decodeReply(e rueidis.XRangeEntry) (Reply, error) {
	r := Reply{ID: e.ID, Status: freeslot.JobStatus{ID: e.FieldValues["j"]}}
	if e.FieldValues["d"] != "" {
		r.Detached = true
		return r, nil
	}
	var err error
	if r.Status.Attempt, err = strconv.Atoi(e.FieldValues["a"]); err != nil {
		return r, fmt.Errorf("attempt: %w", err)
	}
	if r.Status.FinishedAtMS, err = strconv.ParseInt(e.FieldValues["f"], 10, 64); err != nil {
		return r, fmt.Errorf("finished: %w", err)
	}
	r.Status.Node, r.Status.State = e.FieldValues["n"], freeslot.State(e.FieldValues["s"])
	r.Partial = e.FieldValues["p"] == "1"
	return r, setOutcome(&r.Status, e.FieldValues["r"], e.FieldValues["e"])
}
