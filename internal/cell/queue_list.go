package cell

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"
)

const (
	// queueBatch is how many queues one round trip reads.
	queueBatch = 128
	// queueLook is how many jobs of each priority in a queue are compared to find the oldest.
	queueLook = 100
	// levelSize is the distance between the scores of two priorities, as in lib/queue.lua.
	levelSize = 1 << 48
)

// Waiting says which classes have waiting jobs in a cell.
type Waiting struct {
	// Revision changes with the set of classes.
	Revision uint64
	// Same is true if the caller knew this revision already: Classes is then nil.
	Same    bool
	Classes []Class
}

// Waiting reads which classes have waiting jobs. known is the revision that the caller has, 0 for
// none. Errors: from Redis.
func (c *Cell) Waiting(ctx context.Context, known uint64) (Waiting, error) {
	l := c.layout
	revision, err := c.runner.Do(ctx, "waiting", c.client.B().Get().Key(l.WaitingVersion()).Build()).AsUint64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return Waiting{}, fmt.Errorf("read waiting classes: %w", err)
	}
	if revision == known && known != 0 { // 0, too, if the counter was lost
		return Waiting{Revision: revision, Same: true}, nil
	}
	classes, err := c.waiting(ctx)
	return Waiting{Revision: revision, Classes: classes}, err
}

// waiting reads the classes with waiting jobs.
func (c *Cell) waiting(ctx context.Context) ([]Class, error) {
	all, err := c.runner.Do(ctx, "waiting", c.client.B().Hgetall().Key(c.layout.Waiting()).Build()).AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("read waiting classes: %w", err)
	}
	classes := make([]Class, 0, len(all))
	for id, definition := range all {
		classes = append(classes, Class{ID: id, Definition: definition})
	}
	return classes, nil
}

// Queue is a class with waiting jobs.
type Queue struct {
	Class
	// Waiting is the number of its waiting jobs.
	Waiting int
	// OldestMS is the time at which the oldest of them was submitted, in milliseconds since 1970,
	// by the clock of the replica that accepted it. Only the first hundred jobs of each priority
	// are compared. The oldest is among them, unless a hundred tenants wait there.
	OldestMS int64
	// First is the job that is served next.
	First string
}

// Queues reads the classes with waiting jobs, by id. It leaves out classes that became empty
// meanwhile. Errors: from Redis.
func (c *Cell) Queues(ctx context.Context) ([]Queue, error) {
	classes, err := c.waiting(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(classes, func(a, b Class) int { return cmp.Compare(a.ID, b.ID) })
	var queues []Queue
	for part := range slices.Chunk(classes, queueBatch) {
		found, err := c.queues(ctx, part)
		if err != nil {
			return nil, fmt.Errorf("read queues: %w", err)
		}
		queues = append(queues, found...)
	}
	return queues, nil
}

// QueueLength returns how many jobs of a class wait. Errors: from Redis.
func (c *Cell) QueueLength(ctx context.Context, class string) (int, error) {
	n, err := c.runner.Do(ctx, "queues", c.client.B().Zcard().Key(c.layout.Queue(class)).Build()).AsInt64()
	if err != nil {
		return 0, fmt.Errorf("length of the queue of class %s: %w", class, err)
	}
	return int(n), nil
}

func (c *Cell) queues(ctx context.Context, classes []Class) ([]Queue, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	var asked []rueidis.Completed
	for _, class := range classes {
		b, line := c.client.B, c.layout.Queue(class.ID)
		asked = append(asked, b().Zcard().Key(line).Build().Pin(),
			b().Zrange().Key(line).Min("0").Max("0").Withscores().Build().Pin(),
			b().Zrange().Key(line).Min("-1").Max("-1").Withscores().Build().Pin())
	}
	answers := c.client.DoMulti(ctx, asked...)
	var queues []Queue
	var looks []rueidis.Completed
	var of []int // the index in queues of each look
	for i, class := range classes {
		q, levels, err := decodeQueue(class, answers[3*i:3*i+3])
		if err != nil {
			return nil, err
		}
		if q.Waiting == 0 || len(levels) == 0 {
			continue
		}
		queues = append(queues, q)
		for _, level := range levels {
			from, to := level*levelSize, (level+1)*levelSize
			look := c.client.B().Zrangebyscore().Key(c.layout.Queue(class.ID)).
				Min(strconv.FormatInt(from, 10)).Max("("+strconv.FormatInt(to, 10)).
				Limit(0, queueLook).Build().Pin()
			looks, of = append(looks, look), append(of, len(queues)-1)
		}
	}
	if len(looks) == 0 {
		return nil, nil
	}
	for i, answer := range c.client.DoMulti(ctx, looks...) {
		jobs, err := answer.AsStrSlice()
		if err != nil {
			return nil, err
		}
		q := &queues[of[i]]
		for _, job := range jobs {
			if at := submittedMS(job); at > 0 && (q.OldestMS == 0 || at < q.OldestMS) {
				q.OldestMS = at
			}
		}
	}
	return queues, nil
}

// decodeQueue reads the length, the first and the last job of a queue, and the priorities that its
// jobs may have. All are zero if the queue is gone.
func decodeQueue(class Class, answers []rueidis.RedisResult) (q Queue, levels []int64, err error) {
	count, err := answers[0].AsInt64()
	if err != nil {
		return q, nil, err
	}
	var ends [2]rueidis.ZScore
	for i := range ends {
		jobs, err := answers[1+i].AsZScores()
		if err != nil {
			return q, nil, err
		}
		if len(jobs) == 0 {
			return q, nil, nil
		}
		ends[i] = jobs[0]
	}
	q = Queue{Class: class, Waiting: int(count), First: ends[0].Member}
	// an operator may have set any score
	level := func(score float64) int64 { return int64(math.Floor(min(max(score/levelSize, 0), 9))) }
	for l := level(ends[0].Score); l <= level(ends[1].Score); l++ {
		levels = append(levels, l)
	}
	return q, levels, nil
}

// submittedMS returns the time encoded in a job id, or 0 if job is not a job id.
func submittedMS(job string) int64 {
	_, rest, _ := strings.Cut(job, "-")
	id, err := ulid.ParseStrict(rest)
	if err != nil {
		return 0
	}
	return int64(id.Time())
}

// Queues adds up the queues of all cells. For a class that waits in several cells, Waiting is the
// sum, OldestMS the oldest, and First the first job in the first of these cells. failed holds the
// cells that did not answer; nil if all did.
func (s *Set) Queues(ctx context.Context) (queues []Queue, failed map[int]error) {
	parts := make([][]Queue, len(s.cells))
	failed = byCell(s.each(func(c *Cell) (err error) {
		parts[c.cfg.Index], err = c.Queues(ctx)
		return err
	}))
	byID := make(map[string]int)
	for _, part := range parts {
		for _, q := range part {
			i, known := byID[q.ID]
			if !known {
				byID[q.ID] = len(queues)
				queues = append(queues, q)
				continue
			}
			all := &queues[i]
			all.Waiting += q.Waiting
			if q.OldestMS > 0 && (all.OldestMS == 0 || q.OldestMS < all.OldestMS) {
				all.OldestMS = q.OldestMS
			}
		}
	}
	slices.SortFunc(queues, func(a, b Queue) int { return cmp.Compare(a.ID, b.ID) })
	return queues, failed
}

// QueueLength adds up Cell.QueueLength. failed holds the cells that did not answer, as in Queues.
func (s *Set) QueueLength(ctx context.Context, class string) (waiting int, failed map[int]error) {
	counts := make([]int, len(s.cells))
	failed = byCell(s.each(func(c *Cell) (err error) {
		counts[c.cfg.Index], err = c.QueueLength(ctx, class)
		return err
	}))
	for _, n := range counts {
		waiting += n
	}
	return waiting, failed
}
