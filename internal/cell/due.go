package cell

import (
	"context"
	"fmt"
	"strconv"
)

// Due does what is due, for limit jobs at most: pauses that are over, deadlines that have
// passed. Errors: what Redis said; then some of it may have been done.
func (c *Cell) Due(ctx context.Context, limit int) (Due, error) {
	l := c.layout
	keys := []string{l.Due(), l.Finished(), l.Waiting(), l.WaitingVersion()}
	reply, err := c.runner.Call(ctx, c.scripts["due"], keys, []string{strconv.Itoa(max(limit, 1))}).ToArray()
	if err != nil {
		return Due{}, fmt.Errorf("handle due jobs: %w", err)
	}
	expired, err := intAt(reply, 0)
	if err != nil {
		return Due{}, fmt.Errorf("handle due jobs: %w", err)
	}
	text := make([]string, len(reply))
	for i := 1; i < len(reply); i++ {
		if text[i], err = reply[i].ToString(); err != nil {
			return Due{}, fmt.Errorf("handle due jobs: %w", err)
		}
	}
	if len(text)%2 != 0 {
		return Due{}, fmt.Errorf("handle due jobs: %d values, expected pairs", len(text))
	}
	d := Due{Expired: int(expired), More: text[1] == "1"}
	for i := 2; i < len(text); i += 2 {
		d.Classes = append(d.Classes, Class{ID: text[i], Definition: text[i+1]})
	}
	return d, nil
}
