package namelist

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/internal/script"
)

const (
	// deltaPage is the number of entries in a page of a delta, except for the edit that exceeds it.
	deltaPage = 5000
	// headOnly is a revision that no list reaches.
	headOnly = 1 << 53
	// LookLists is the largest number of lists in a look.
	LookLists = 1000
)

// Delta holds the head of a list, and its edits after a revision.
type Delta struct {
	// Head has no Birth if there never was such a list, and State Deleted for a tombstone. Edits up
	// to its Floor may be missing.
	Head Head
	// Edits are in the order of their revisions. More is true if there are later ones.
	Edits []Edit
	More  bool
	// History identifies the server's data; it is empty if it was not asked for.
	History string
}

// Delta reads the head, and a page of the edits after a revision.
func (c *Control) Delta(ctx context.Context, list string, after int64, history bool) (Delta, error) {
	if err := ValidateName("list", list); err != nil {
		return Delta{}, err
	}
	return c.delta(ctx, list, after, history)
}

// delta runs delta.lua.
func (c *Control) delta(ctx context.Context, list string, after int64, history bool) (d Delta, err error) {
	args := []string{number(after), number(deltaPage), flag(history)}
	r := script.ReadReply(c.runner.Read(
		ctx, scripts["delta"], []string{c.k.record(list), c.k.versions(list), c.k.edits(list)}, args,
	))
	if d = readDelta(&r, list); r.Err != nil {
		return Delta{}, fault("read", list, r.Err)
	}
	return d, nil
}

func readDelta(r *script.Reply, list string) (d Delta) {
	code, at := r.Number(), redisTime(r)
	d.History = r.Text()
	d.Head = readHead(r, list, at)
	d.More = r.Number() == 1
	if r.Err == nil && code != codeDone && code != codeGone {
		r.Err = fmt.Errorf("code %d of redis is unknown", code)
	}
	for r.Err == nil && len(r.Values) > 0 {
		v, _ := r.Next()
		inner := script.ReadReply(&v)
		e := Edit{Revision: inner.Number()}
		text := inner.Text()
		if r.Err = inner.Err; r.Err == nil {
			r.Err = json.Unmarshal([]byte(text), &e.Changes)
		}
		d.Edits = append(d.Edits, e)
	}
	return d
}

// Named says which versions of a list the control server knows.
type Named struct {
	// Numbers has the numbers of the versions and of the operation.
	Numbers map[int64]bool
	// Highest is the highest number that was ever given out; 0 if the list never existed, or its
	// versions are lost.
	Highest int64
}

// Named returns the versions of a list that are in use, even of a tombstone. They include a build
// that becomes a version meanwhile.
func (c *Control) Named(ctx context.Context, list string) (Named, error) {
	h, err := c.head(ctx, list)
	if err != nil {
		return Named{}, err
	}
	versions, err := c.Versions(ctx, list)
	n := Named{Numbers: map[int64]bool{h.Op.Number: true}, Highest: h.Number}
	for i := range versions {
		n.Numbers[versions[i].Number] = true
	}
	if h.lost {
		n.Highest = 0
	}
	return n, err
}

// Mark is what a look says of a list; the zero value means that there is none.
type Mark struct {
	Revision int64  `json:"revision,omitempty"`
	Birth    string `json:"birth,omitempty"`
}

// Look returns the marks of up to LookLists lists, in their order. history identifies the server's
// data; it is empty if it was not asked for.
func (c *Control) Look(
	ctx context.Context, lists []string, askHistory bool,
) (marks []Mark, history string, at time.Time, err error) {
	r := script.ReadReply(c.runner.Read(
		ctx, scripts["look"], []string{c.k.index()}, append([]string{flag(askHistory)}, lists...),
	))
	at, history = redisTime(&r), r.Text()
	marks = make([]Mark, len(lists))
	for i := range marks {
		if text := r.Text(); text != "" {
			if _, err := fmt.Sscanf(text, "%d %s", &marks[i].Revision, &marks[i].Birth); err != nil && r.Err == nil {
				r.Err = fmt.Errorf("mark of list %s: %w", lists[i], err)
			}
		}
	}
	if r.Err != nil {
		return nil, "", at, fmt.Errorf("look at lists: %w", r.Err)
	}
	return marks, history, at, nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return ""
}
