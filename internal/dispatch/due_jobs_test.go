package dispatch

import (
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// An operator deletes what is there for operators: replicas write it again.
func TestSetsAreMended(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	n := node("n1", 1)
	n.Pools = []string{"eu"}
	r.agent(n)
	online, members := r.layout.Online(), r.layout.PoolMembers("eu")
	r.do("DEL", online)
	r.do("DEL", members)
	r.replica("x")
	waittest.Until(t, "the sets are back", func() bool {
		return r.do("SISMEMBER", online, "n1") == 1 && r.do("SISMEMBER", members, "n1") == 1
	})
}
