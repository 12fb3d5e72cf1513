package cache

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestOutages: the time without an answer adds up, while an outage goes on, too.
func TestOutages(t *testing.T) {
	t.Parallel()
	var o outages
	second := int64(time.Second)
	o.end(0)
	o.begin(0) // the clock may begin at 0
	o.begin(2 * second)
	if got := o.total(3 * second); got != 3*time.Second {
		t.Errorf("an outage since 3 s counts %v; want 3s", got)
	}
	o.end(4 * second)
	o.begin(10 * second)
	if got := o.total(11 * second); got != 5*time.Second {
		t.Errorf("outages of 4 s and 1 s count %v; want 5s", got)
	}
}

// A cell that is away is one line when it is lost and one when it is back, however
// many comparisons fail meanwhile.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: 5 * time.Millisecond}, logged(core)).run()
	logs.TakeAll()
	var failed atomic.Int64
	r.source.intercept(func(context.Context, cell.Revision, *cell.Changes, error) error {
		failed.Add(1)
		return errors.New("no answer")
	})
	eventually(t, "ten failures", func() bool { return failed.Load() > 10 })
	r.source.intercept(nil)
	r.sync()
	f, now := r.cache.followers[0], r.cache.clock.now()
	if total := f.outages.total(now); total <= 0 || f.outages.total(now+int64(time.Hour)) != total {
		t.Errorf("the outage of a cell that is back counts %v; want some time, and no more an hour later", total)
	}
	lost, back := logs.FilterMessage("redis.cell_lost").All(), logs.FilterMessage("redis.cell_back").All()
	if logs.Len() != 2 || len(lost) != 1 || len(back) != 1 {
		t.Fatalf("%d failures are logged as %v", failed.Load(), logs.All())
	}
	if f := lost[0].ContextMap(); lost[0].Level != zap.WarnLevel || f["cell"] != int64(0) || f["error"] != "no answer" {
		t.Errorf(`%+v; want lost[0].Level == zap.WarnLevel, f["cell"] == int64(0), f["error"] == "no answer"`, lost[0])
	}
	if f := back[0].ContextMap(); back[0].Level != zap.InfoLevel || f["away"].(time.Duration) <= 0 {
		t.Errorf(`%+v; want back[0].Level == zap.InfoLevel, f["away"].(time.Duration) > 0`, back[0])
	}
}
