package cell

import (
	"context"
	"fmt"
	"strconv"
)

// retainPage is how many records one call of Retain counts, and drops, at most: it holds
// up Redis for a millisecond.
const retainPage = 100

// Retained is what Retain found and did.
type Retained struct {
	// Bytes is what the records of ended jobs take, those included that have just expired.
	Bytes int64
	// Dropped is how many records were too much.
	Dropped int
	// More is true when there is more to do at once.
	More bool
}

// Retains reports whether the bytes of ended jobs' records are limited.
func (c *Cell) Retains() bool { return c.cfg.RetentionBytes > 0 }

// Retain keeps the records of jobs that have ended within Config.RetentionBytes, the oldest
// go first; with 0, no limit, it does nothing. One call does a page of it. Several replicas
// may call at the same time. Errors: what Redis said.
func (c *Cell) Retain(ctx context.Context) (Retained, error) {
	if !c.Retains() {
		return Retained{}, nil
	}
	return c.retain(ctx, retainPage)
}

func (c *Cell) retain(ctx context.Context, page int) (Retained, error) {
	l := c.layout
	args := []string{strconv.FormatInt(c.cfg.RetentionBytes, 10), strconv.Itoa(page)}
	reply, err := c.runner.Call(ctx, c.scripts["retain"], []string{l.Finished(), l.Kept()}, args).ToArray()
	if err != nil {
		return Retained{}, fmt.Errorf("retain records: %w", err)
	}
	if len(reply) != 3 {
		return Retained{}, fmt.Errorf("retain records: %d values, expected 3", len(reply))
	}
	var r Retained
	if r.Bytes, err = reply[0].AsInt64(); err != nil {
		return Retained{}, fmt.Errorf("retain records: %w", err)
	}
	dropped, err := intAt(reply, 1)
	if err != nil {
		return Retained{}, fmt.Errorf("retain records: %w", err)
	}
	more, err := reply[2].ToString()
	if err != nil {
		return Retained{}, fmt.Errorf("retain records: %w", err)
	}
	r.Dropped, r.More = int(dropped), more == "1"
	return r, nil
}
