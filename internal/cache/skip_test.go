package cache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// Choices skip a cell that refuses writes for a while, also after successful comparisons, and never
// skip all cells at once.
func TestCellRefused(t *testing.T) {
	t.Parallel()
	c := New(Config{}, []Feed{{Source: noSource{}}, {Source: noSource{}}}, zap.NewNop(), prometheus.NewRegistry())
	defer func() { _ = c.Stop(t.Context()) }()
	if c.Skip() != 0 {
		t.Fatal("at first")
	}
	c.CellRefused(1)
	c.followers[1].resync("test")
	if got := c.Skip(); got != selection.CellMask(0).With(1) {
		t.Errorf("skipped: %b", got)
	}
	c.CellRefused(0)
	if got := c.Skip(); got != 0 {
		t.Errorf("all cells are skipped: %b", got)
	}
	c.clock.origin = c.clock.origin.Add(-refusalRest - time.Millisecond)
	if got := c.Skip(); got != 0 {
		t.Errorf("skipped after the rest: %b", got)
	}
	c.CellFailed(0)
	if got := c.Skip(); got != selection.CellMask(0).With(0) {
		t.Errorf("skipped: %b", got)
	}
}

// refusing is a Redis that refuses every read.
type refusing struct {
	noSource
	err error
}

func (r refusing) History(context.Context) (string, error) { return "", r.err }

// The health has the first word of the error with which Redis refuses a replica, until Redis
// answers again.
func TestRefusal(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	client := redis.Client(t)
	refused := client.Do(t.Context(), client.B().Arbitrary("NOSUCHCOMMAND", "secret").Build()).Error()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"refused": {fmt.Errorf("ask: %w", refused), "ERR"},
		"away":    {errors.New("dial tcp: connection refused"), ""},
	} {
		source := &refusing{err: test.err}
		c := New(Config{}, []Feed{{Source: source}}, zap.NewNop(), prometheus.NewRegistry())
		if c.followers[0].resync("test") || c.Health().Cells[0].Refusal != test.want {
			t.Errorf("%s: %q, expected %q", name, c.Health().Cells[0].Refusal, test.want)
		}
		source.err = nil
		if !c.followers[0].resync("test") || c.Health().Cells[0].Refusal != "" {
			t.Errorf("%s: %q after an answer", name, c.Health().Cells[0].Refusal)
		}
		_ = c.Stop(t.Context())
	}
}
