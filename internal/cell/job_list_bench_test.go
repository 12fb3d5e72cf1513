package cell

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// BenchmarkListing reports how long the first page of a listing takes: of ended jobs, of which
// there are a million, and of the running jobs of 10,000 nodes, nearly all of them idle, which are
// asked for (without owners) or known. Only the records that a page reads exist.
func BenchmarkListing(b *testing.B) {
	const ended, records, nodes = 1_000_000, MaxLook, 10_000
	m := newMeter(b, redistest.New(b))
	l := m.c.Layout()
	do := func(args ...string) { m.must(m.raw.Do(m.ctx, m.raw.B().Arbitrary(args...).Build()).Error()) }
	static := jobRecord{tenant: "acme", slots: 1, submittedMS: 1, retentionMS: 1, class: echo, attempts: 3, definition: mustJSON(ClassDefinition{Service: "echo"})}
	for i := 0; i < ended; i += 1000 {
		finished, failed := []string{"ZADD", l.Finished()}, []string{"ZADD", l.Ended(string(freeslot.StateFailed))}
		for n := i; n < i+1000; n++ {
			id, us := NewJobID(0), strconv.Itoa(1_000_000+n*1000)
			finished, failed = append(finished, us, id), append(failed, us, id)
			if n < ended-records {
				continue
			}
			do("HSET", l.Job(id), "state", "failed", "job", static.String(), "run", "1 n1 e1 1", "finished_at_ms", "1", "error", `{"code":"usual","message":"no"}`)
			if n%100 == 0 {
				do("ZADD", l.Ended(string(freeslot.StateDead)), us, id)
				do("HSET", l.Job(id), "state", "dead")
			}
		}
		do(finished...)
		do(failed...)
	}
	var busy []string
	for i := range nodes {
		node := fmt.Sprintf("n%05d", i)
		do("ZADD", l.Revisions(), strconv.Itoa(i+1), node)
		do("HSET", l.Slots(node), "sum", "0")
		if i%1000 == 999 {
			id := NewJobID(0)
			do("HSET", l.Slots(node), "sum", "1", id, "1:e1:1")
			do("HSET", l.Job(id), "state", "running", "job", static.String(), "run", "1 "+node+" e1 1")
			busy = append(busy, node)
		}
	}
	asked, known := NewSet(m.c), NewSet(m.c)
	known.SetOwners(func(int) ([]string, bool) { return busy, true })
	for _, c := range []struct {
		name string
		set  *Set
		f    JobFilter
		want int
	}{
		{"dead", asked, JobFilter{State: freeslot.StateDead}, records / 100},
		{"failed", asked, JobFilter{State: freeslot.StateFailed, Service: "echo"}, 100},
		{"looks-at-all-it-may", asked, JobFilter{State: freeslot.StateFailed, Code: "rare"}, 0},
		{"running-nodes-asked", asked, JobFilter{State: freeslot.StateRunning}, len(busy)},
		{"running-nodes-known", known, JobFilter{State: freeslot.StateRunning}, len(busy)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				page, err := c.set.Jobs(m.ctx, c.f, "", 100)
				if err != nil || len(page.Jobs) != c.want {
					b.Fatalf("%d jobs, %v; want %d", len(page.Jobs), err, c.want)
				}
			}
		})
	}
}
