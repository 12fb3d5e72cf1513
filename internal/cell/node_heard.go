package cell

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

// quietFor is the time for which a replica allows quiet heartbeats. It is three reads of the index,
// so that two of them may fail.
const quietFor = 3 * time.Second

// Quiet says whether heartbeats that change nothing may go without an event. Agents publish all
// heartbeats unless a replica has allowed quiet ones within the last three seconds.
type Quiet int

const (
	// QuietAsBefore leaves it as it is.
	QuietAsBefore Quiet = iota
	// QuietAllowed may be used only while every replica calls Heard.
	QuietAllowed
	// QuietEnded makes every heartbeat an event again, at once.
	QuietEnded
)

// Heard is a page of quiet heartbeats.
type Heard struct {
	// NowMS is the time of the call by Redis' clock.
	NowMS int64
	// beats are the nodes, each with its time behind it.
	beats []rueidis.RedisMessage
}

// Len is the length of the page, with what All leaves out.
func (h *Heard) Len() int { return len(h.beats) / 2 }

// All returns the heartbeats of the page, oldest first, with their times in milliseconds of Redis'
// clock. It leaves out what it cannot read.
func (h *Heard) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for beat := range slices.Chunk(h.beats, 2) {
			node, err := beat[0].ToString()
			if err != nil || len(beat) < 2 {
				continue
			}
			if at, err := beat[1].AsFloat64(); err == nil && !yield(node, int64(at)) {
				return
			}
		}
	}
}

// Heard reads the quiet heartbeats from sinceMS on, at most limit of them, and says whether there
// may be further ones. If the page was full, call it again with the time of its last heartbeat.
func (c *Cell) Heard(ctx context.Context, sinceMS int64, limit int, quiet Quiet) (out Heard, err error) {
	defer wrap(&err, "read heartbeats")
	allow := ""
	switch quiet {
	case QuietAllowed:
		allow = millis(quietFor)
	case QuietEnded:
		allow = "0"
	}
	args := []string{strconv.FormatInt(sinceMS, 10), strconv.Itoa(limit), allow}
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["heard"], []string{c.layout.Version()}, args))
	out.NowMS = r.Number()
	if beats, ok := r.Next(); ok {
		out.beats, r.Err = beats.ToArray()
	}
	return out, r.Err
}
