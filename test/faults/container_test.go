package faults

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest/docker"
)

// demandEngine is the environment variable that makes it a failure that no Docker engine answers.
const demandEngine = "FREESLOT_FAULTS_DOCKER"

// outage is how long Redis' container is paused or without a network: longer than a node may be
// silent.
const outage = 2500 * time.Millisecond

// TestContainer breaks Redis in the ways that a container runtime has: it is paused, killed, and
// cut off its network, where packets vanish.
func TestContainer(t *testing.T) {
	if os.Getenv(demandEngine) != "1" && !docker.Answers() {
		t.Skip("no Docker engine answers; make docker-test starts one")
	}
	t.Parallel()
	c := docker.New(t)
	f, folder := newFailover(t, fleetConfig{slots: []int{2, 3, 4, 3}, cells: 1, store: &store{url: c.Inside().URL()}})
	history, rested := runLoad(t, f, 1, restLimit, func(ctx context.Context, _ func(string)) {
		for _, fault := range []struct {
			name      string
			make, end func()
			lasts     time.Duration
		}{
			{"pause", c.Pause, c.Unpause, outage},
			{"kill", c.Kill, c.Start, 0},
			{"disconnect", c.Disconnect, c.Connect, outage},
		} {
			pause(ctx, steady)
			f.fault(fault.name + " the container")
			fault.make()
			pause(ctx, fault.lasts)
			fault.end()
			f.fault("mended")
		}
		pause(ctx, steady)
	})
	judge(t, history, rested, folder)
}
