package cache

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/selection"
)

// A cell that refuses writes rests for a while, whatever comparisons say, and never
// all cells at once.
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
