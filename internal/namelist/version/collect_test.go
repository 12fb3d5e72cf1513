package version

import (
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestBuildsOfKeysThatAreGone: a key that is removed between the scan and the look at it belongs to
// no build, and is no failure of its server.
func TestBuildsOfKeysThatAreGone(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		gone := r.cfg.Prefix + ":lists:{vip_1_1}"
		builds, err := r.Builds(bounded(t), []Key{{name: gone}, {name: gone + ":block", block: true}})
		if err != nil || len(builds) != 0 {
			t.Errorf("builds %v, %v, expected none", builds, err)
		}
	})
}
