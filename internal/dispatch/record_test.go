package dispatch

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestRecordAfterDataLoss: a running replica records again what its start did. Where another one
// was faster, the log and readiness say so until what that one recorded is gone.
func TestRecordAfterDataLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	core, logs := observer.New(zap.WarnLevel)
	rep := r.replica("x", func(c *replicaConfig) { c.log = zap.New(core) })
	kept := func() bool {
		keys := []string{r.layout.Cells(), r.layout.Schema(), r.layout.ServesVersion(), r.layout.ServesGeneration()}
		n, err := r.client.Do(deadline(t), r.client.B().Exists().Key(keys...).Build()).AsInt64()
		return err == nil && n == int64(len(keys))
	}
	if err := r.client.Do(deadline(t), r.client.B().Flushall().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "all is recorded again", kept)
	other, err := cell.New(cell.Config{Layout: r.layout, Cells: 2}, r.client, r.log, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Record(deadline(t)); !cell.IsRefusal(err) {
		t.Errorf("another number of cells: %v", err)
	}
	if served, err := r.cell.Served(deadline(t)); !served || err != nil {
		t.Errorf("an agent sees no scheduler: %v", err)
	}

	// Otherwise the replyKeeper might record between the two commands.
	r.do("EVAL", "redis.call('FLUSHALL') return redis.call('HSET', KEYS[1], 'cells', 2, 'servers', 1, 'server', 0)", "1", r.layout.Cells())
	waittest.Until(t, "readiness turns red", func() bool { ok, detail := rep.Recorded(); return !ok && detail != "" })
	waittest.Until(t, "the log says why", func() bool { return logs.FilterMessage("record.failed").Len() == 1 })
	r.do("DEL", r.layout.Cells())
	waittest.Until(t, "readiness is back", func() bool { ok, _ := rep.Recorded(); return ok && kept() })
}
