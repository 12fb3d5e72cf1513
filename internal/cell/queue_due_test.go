package cell

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// TestDueBy: jobs for later and jobs in a pause count, deadlines of other jobs do not. Of very many
// it makes an estimate from an even sample.
func TestDueBy(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		at := time.Now().Add(2 * time.Hour)
		due := func() []DueQueue {
			t.Helper()
			found, err := r.DueBy(r.ctx(), at)
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(found, func(a, b DueQueue) int { return strings.Compare(a.Definition, b.Definition) })
			return found
		}
		if found := due(); len(found) != 0 {
			t.Errorf("%+v is due; want nothing", found)
		}
		later := r.later()
		later.Job.Slots = 3
		r.enqueued(later)
		other := r.later()
		other.Job.Service = "other"
		r.enqueued(other)
		waits := submission("r1")
		waits.Candidates, waits.Job.TimeoutMS = nil, 60_000
		r.enqueued(waits)
		paused := r.waits("")
		r.do("HSET", r.l.Job(paused), "state", string(freeslot.StateRetryWait))
		r.do("ZADD", r.l.Due(), "1", paused)
		r.do("ZADD", r.l.Due(), "1", "no job")
		found := due()
		want := []DueQueue{{Class: ClassOf(later.Job), Jobs: 2, Slots: 4}, {Class: ClassOf(other.Job), Jobs: 1, Slots: 1}}
		if !slices.Equal(found, want) {
			t.Errorf("%+v is due; want %+v", found, want)
		}
		if soon, err := r.DueBy(r.ctx(), time.Now()); err != nil || len(soon) != 1 || soon[0].Jobs != 1 {
			t.Errorf("%+v, %v is due now; want the job in a pause alone", soon, err)
		}
		r.do("DEL", r.l.Due())
		record := r.hash(r.l.Job(later.JobID))
		add := []string{"ZADD", r.l.Due()}
		for i := range 2 * dueLook { // every second place is a job for later
			id := fmt.Sprintf("many-%d", i)
			if add = append(add, strconv.Itoa(1000+i), id); i%2 == 0 {
				r.do("HSET", r.l.Job(id), "state", "scheduled", "job", record["job"])
			}
		}
		r.do(add...)
		if found = due(); len(found) != 1 || found[0].Jobs != dueLook || found[0].Slots != 3*dueLook {
			t.Errorf("%+v is due; want %d jobs", found, dueLook)
		}
	})
}
