package cell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// Gate bounds how many jobs run, or wait, at a time in a cell. A job that runs counts at
// all of its gates that count jobs that run, and one that waits at those that count such. The last
// limit that a job came with holds.
type Gate struct {
	name  string
	limit int
}

// RunningGate lets at most limit jobs of the tenant run; further ones are held back.
func RunningGate(tenant string, limit int) Gate { return Gate{"r:" + tenant, limit} }

// KeyGate lets at most limit jobs of the tenant with this concurrency key run; further ones are
// held back. All jobs of a key must come to the same cell.
func KeyGate(tenant, key string, limit int) Gate {
	sum := sha256.Sum256([]byte(key))
	return Gate{"k:" + tenant + ":" + hex.EncodeToString(sum[:16]), limit}
}

// WaitingGate lets at most limit jobs of the tenant wait, for a slot, after a failure or for a time;
// further ones are refused.
func WaitingGate(tenant string, limit int) Gate { return Gate{"w:" + tenant, limit} }

func (s *Submission) validateGates() error {
	for _, g := range s.Gates {
		if g.limit < 1 || g.name == "" {
			return freeslot.Invalid("gates", "has a limit of %d, expected 1 or more", g.limit)
		}
	}
	return nil
}

// gatesArg is how the script gets them.
func gatesArg(gates []Gate) string {
	var text strings.Builder
	for i, g := range gates {
		if i > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(g.name)
		text.WriteByte(' ')
		text.WriteString(strconv.Itoa(g.limit))
	}
	return text.String()
}

// crowded is the refusal of a WaitingGate.
func (s *Submission) crowded() *freeslot.Error {
	share := 0
	for _, g := range s.Gates {
		if strings.HasPrefix(g.name, "w:") {
			share = g.limit
		}
	}
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
		Message: fmt.Sprintf("as many jobs of tenant %s wait as may: %d in this cell, its share of max_waiting", s.Tenant, share),
	}
}

// CheckGates puts right what is counted at gates, and lets jobs that are held back beside an
// open one wait for slots again; at most limit gates with such jobs are looked at, and as many
// others. Returned are the classes of these jobs. Errors: what Redis said.
func (c *Cell) CheckGates(ctx context.Context, limit int) ([]Class, error) {
	l := c.layout
	keys := []string{l.Version(), l.Waiting(), l.WaitingVersion()}
	text, err := c.runner.Call(ctx, c.scripts["limits"], keys, []string{strconv.Itoa(max(limit, 1))}).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("check gates: %w", err)
	}
	if len(text)%2 != 0 {
		return nil, fmt.Errorf("check gates: %d values, expected pairs", len(text))
	}
	var classes []Class
	for i := 0; i < len(text); i += 2 {
		classes = append(classes, Class{ID: text[i], Definition: text[i+1]})
	}
	return classes, nil
}

// Gated reports whether any gate counts or holds back jobs. Errors: what Redis said.
func (c *Cell) Gated(ctx context.Context) (bool, error) {
	n, err := c.runner.Do(ctx, "gates", c.client.B().Exists().Key(c.layout.Gates(), c.layout.Parked()).Build()).AsInt64()
	if err != nil {
		return false, fmt.Errorf("look for gates: %w", err)
	}
	return n > 0, nil
}

// heldBy is what holds a job of this class back; "" when no gate does.
func (c *Cell) heldBy(ctx context.Context, jobID, class string) (string, error) {
	text, err := c.runner.Do(ctx, "read", c.client.B().Hget().Key(c.layout.Job(jobID)).Field("gates").Build()).ToString()
	if err != nil {
		return "", rueidisNil(err)
	}
	for _, name := range strings.Fields(text) {
		by := gateKind(name)
		if by == "" {
			continue
		}
		err := c.runner.Do(ctx, "read", c.client.B().Zscore().Key(c.layout.ParkedAt(name)).Member(class+" "+jobID).Build()).Error()
		if err == nil {
			return by, nil
		}
		if rueidisNil(err) != nil {
			return "", err
		}
	}
	return "", nil
}

// rueidisNil passes every error but the one that says that something is not there.
func rueidisNil(err error) error {
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}
