package cell

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// heldGates is how many gates of a cell Held looks at.
const heldGates = 1000

// Held is a limit that holds jobs back.
type Held struct {
	// By is freeslot.HeldByTenant or HeldByKey, and Tenant whose limit it is.
	By, Tenant string
	// Limit is how many may run, Running how many do, and Jobs how many are held back.
	Limit, Running, Jobs int
	// First is the job that goes on next.
	First string
}

// Held reads which limits hold jobs back, the one with the most jobs first; of more than a thousand
// those that were looked at longest ago. Errors: what Redis said.
func (c *Cell) Held(ctx context.Context) ([]Held, error) {
	l, b := c.layout, c.client.B
	names, err := c.runner.Do(ctx, "held", b().Zrange().Key(l.Parked()).Min("0").Max(strconv.Itoa(heldGates-1)).Build()).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("list limits: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	var held []Held
	for part := range slices.Chunk(names, queueBatch) {
		var asked []rueidis.Completed
		for _, name := range part {
			asked = append(asked, b().Hget().Key(l.Gates()).Field(name).Build(), b().Scard().Key(l.Gate(name)).Build(),
				b().Zcard().Key(l.ParkedAt(name)).Build(), b().Zrange().Key(l.ParkedAt(name)).Min("0").Max("0").Build())
		}
		answers := c.client.DoMulti(ctx, asked...)
		for i, name := range part {
			h, err := decodeHeld(name, answers[4*i:4*i+4])
			if err != nil {
				return nil, fmt.Errorf("read limit %s: %w", name, err)
			}
			if h.Jobs > 0 {
				held = append(held, h)
			}
		}
	}
	return held, nil
}

func decodeHeld(name string, answers []rueidis.RedisResult) (h Held, err error) {
	h.By = gateKind(name)
	h.Tenant = gateTenant(name)
	limit, err := answers[0].ToString()
	if rueidisNil(err) != nil {
		return h, err
	}
	h.Limit, _ = strconv.Atoi(limit) // an operator's may be any
	for i, n := range []*int{&h.Running, &h.Jobs} {
		count, err := answers[1+i].AsInt64()
		if err != nil {
			return h, err
		}
		*n = int(count)
	}
	first, err := answers[3].AsStrSlice()
	if err != nil || len(first) == 0 {
		return h, err
	}
	h.First = parkedJob(first[0])
	return h, nil
}

// gateTenant is whose jobs a gate counts.
func gateTenant(name string) string {
	tenant, _, _ := strings.Cut(name[min(2, len(name)):], ":")
	return tenant
}

// gateKind is what a status says of a gate that holds its job back; "" for one that does not.
func gateKind(name string) string {
	switch {
	case strings.HasPrefix(name, "r:"):
		return freeslot.HeldByTenant
	case strings.HasPrefix(name, "k:"):
		return freeslot.HeldByKey
	default:
		return ""
	}
}

// parkedJob is the job of a member of Layout.ParkedAt.
func parkedJob(member string) string { return member[strings.IndexByte(member, ' ')+1:] }

// Held are those of all cells, each limit of a cell by itself. failed has the cells that did
// not answer, nil when all did.
func (s *Set) Held(ctx context.Context) (held []Held, failed map[int]error) {
	parts := make([][]Held, len(s.cells))
	failed = byCell(s.each(func(c *Cell) (err error) {
		parts[c.cfg.Index], err = c.Held(ctx)
		return err
	}))
	held = slices.Concat(parts...)
	slices.SortStableFunc(held, func(a, b Held) int { return b.Jobs - a.Jobs })
	return held, failed
}
