package manage

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/build"
	"github.com/freeslot/freeslot/internal/redis/redistest"
)

// What a cancelled build wrote is removed by its names, without a look through all keys.
func TestCancelledBuild(t *testing.T) {
	t.Parallel()
	pace, writing, goOn := held()
	r := newRig(t, redistest.New(t).Target, func(r *rig) { r.put(namelist.Server{Name: "slow"}, build.SegmentsConfig{Pace: pace}) })
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{Server: "slow"})
	r.check(err)
	u := r.begin(r.Manager, Upload{List: "vip", Format: build.TXT, By: by}, lines(0, 1000))
	<-writing
	if len(r.dataKeys()) == 0 {
		t.Fatal("nothing was written")
	}
	_, err = r.control.Cancel(r.ctx, "vip", u.Op.ID)
	r.check(err)
	close(goOn)
	r.ended(u.ID)
	r.until("no segment and no block is left", func() bool { return len(r.dataKeys()) == 0 })
	stats, err := r.redis.Client(t).Do(r.ctx, r.redis.Client(t).B().Info().Section("commandstats").Build()).ToString()
	r.check(err)
	if strings.Contains(stats, "cmdstat_scan:") {
		t.Error("all keys of the server were looked through")
	}
}
