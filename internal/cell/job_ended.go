package cell

import (
	"context"
	"strconv"

	"github.com/freeslot/freeslot/internal/script"
)

// endedPage is the most entries of each index that one call of KeepEnded looks at.
const endedPage = 200

// EndedKept says what KeepEnded found and did.
type EndedKept struct {
	// Dead is the number of dead jobs that are kept, and Dropped how many were dropped because of
	// the limit.
	Dead, Dropped int
	// More is true if the next call has work to do at once.
	More bool
}

// KeepEnded keeps the indexes of ends that are no success, and drops the oldest dead jobs beyond
// Config.DeadLimit. One call does a page of the work. Several replicas may call it at the same
// time. Errors: from Redis.
func (c *Cell) KeepEnded(ctx context.Context) (EndedKept, error) {
	return c.keepEnded(ctx, endedPage)
}

func (c *Cell) keepEnded(ctx context.Context, page int) (EndedKept, error) {
	args := []string{millis(c.cfg.DeadRetention), strconv.Itoa(c.cfg.DeadLimit), strconv.Itoa(page)}
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["ended"], []string{c.layout.EndedInfo()}, args))
	done := EndedKept{Dead: int(r.Number()), Dropped: int(r.Number()), More: r.Text() == "1"}
	wrap(&r.Err, "keep the index of ended jobs")
	return done, r.Err
}
