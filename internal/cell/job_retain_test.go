package cell

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// retainedBytes is what these tests let records take: some twenty of them.
const retainedBytes = 40_000

func limited(c *Config) { c.RetentionBytes = retainedBytes }

// ended has a job end with a result of so many bytes, and returns its id.
func (r *rig) ended(epoch Epoch, bytes int) string {
	r.t.Helper()
	job := r.place("", 1, "n1")
	done := succeed("n1", epoch, job)
	done.Result = []byte(`"` + strings.Repeat("x", bytes) + `"`)
	r.complete1(done)
	return job
}

// recordBytes is what a record counts; 0 where there is none.
func (r *rig) recordBytes(job string) (n int64) {
	r.t.Helper()
	const overhead = 900
	record := r.hash(r.l.Job(job))
	if len(record) == 0 {
		return 0
	}
	for _, field := range []string{"job", "spec", "result", "error", "progress", "attempts"} {
		n += int64(len(record[field]))
	}
	return n + overhead
}

// retain lets a replica do all that there is to do, a page at a time.
func (r *rig) retain(c *Cell, page int) Retained {
	r.t.Helper()
	for range 1000 {
		got, err := c.retain(r.ctx(), page)
		if err != nil {
			r.t.Fatal(err)
		}
		if !got.More {
			return got
		}
	}
	r.t.Fatal("there is always more to do")
	return Retained{}
}

// recount lets the time pass in which all that is kept is counted again.
func (r *rig) recount() Retained {
	r.t.Helper()
	for range 2*len(r.hash(r.l.Kept())) + 4 { // pages: twice as many as parts
		r.auditDue()
		r.retain(r.Cell, 20)
	}
	return r.retain(r.Cell, 20)
}

// auditDue lets the time pass after which the next page is counted again.
func (r *rig) auditDue() {
	r.t.Helper()
	if part := strings.Fields(r.field(r.l.Kept(), "audit")); len(part) == 4 {
		part[3] = "1"
		r.do("HSET", r.l.Kept(), "audit", strings.Join(part, " "))
	}
}

// retention is the slow twin: the jobs that ended, in that order, with what their records take as long as
// they are there.
type retention struct {
	jobs  []string
	bytes map[string]int64
}

func (m *retention) sum() (n int64) {
	for _, job := range m.jobs {
		n += m.bytes[job]
	}
	return n
}

// enforce drops the oldest while there are too many bytes.
func (m *retention) enforce() {
	for m.sum() > retainedBytes {
		delete(m.bytes, m.jobs[0])
		m.jobs = m.jobs[1:]
	}
}

// TestRetain: jobs end, records expire in their turn, two replicas count. What is kept is what the
// twin keeps, and the bytes are those of the records as soon as nothing of a part is gone.
func TestRetain(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.RetentionBytes = retainedBytes
		other := open(t, r.redis, func(c *Config) { *c = r.cfg })
		rng := rand.New(rand.NewPCG(1, 2))
		epoch := r.register(testNode("n1", 4))
		twin := &retention{bytes: map[string]int64{}}
		check := func(step int, got Retained) {
			t.Helper()
			twin.enforce()
			for _, job := range twin.jobs {
				if !r.exists(r.l.Job(job)) {
					t.Fatalf("step %d: job %s was dropped, %d bytes are kept and %d are the limit", step, job, twin.sum(), retainedBytes)
				}
			}
			if n := r.int("ZCARD", r.l.Finished()); n != int64(len(twin.jobs)) {
				t.Fatalf("step %d: %d jobs in the index, expected %d", step, n, len(twin.jobs))
			}
			if got.Bytes != twin.sum() {
				t.Fatalf("step %d: %d bytes are told, %d are there", step, got.Bytes, twin.sum())
			}
		}
		dropped := 0
		for step := range 60 {
			for range rng.IntN(12) {
				job := r.ended(epoch, rng.IntN(3000))
				twin.jobs = append(twin.jobs, job)
				twin.bytes[job] = r.recordBytes(job)
			}
			for _, c := range []*Cell{r.Cell, other}[:1+rng.IntN(2)] {
				r.auditDue()
				got := r.retain(c, 3+rng.IntN(20))
				dropped += got.Dropped
				if step%3 == 0 || c == r.Cell {
					check(step, got)
				}
			}
		}
		if n := len(twin.jobs); n < 10 || n > 45 {
			t.Errorf("%d jobs are kept at the end", n)
		}
		r.unchanged("a call with nothing to do", func() { r.retain(other, 20) }, func(dump map[string]string) {
			for key := range dump { // but when it was that a part was counted again
				if strings.HasPrefix(key, "kept") {
					delete(dump, key)
				}
			}
		})
		r.sound()
	})
}

// TestRetainDeletions: records vanish anywhere, two replicas count. What is told is never less than what is there, what is kept
// are the newest, none is dropped for more than what has vanished since its part was counted, and counted again all is exact.
func TestRetainDeletions(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis, limited)
		other := open(t, redis, func(c *Config) { *c = r.cfg })
		rng := rand.New(rand.NewPCG(3, 4))
		epoch := r.register(testNode("n1", 4))
		var jobs []string // those that ended and did not vanish, oldest first
		bytes := map[string]int64{}
		vanished, dropped := int64(0), 0
		settle := func(step int) {
			t.Helper()
			got := r.retain([]*Cell{r.Cell, other}[rng.IntN(2)], 3+rng.IntN(20))
			first := slices.IndexFunc(jobs, func(job string) bool { return r.exists(r.l.Job(job)) })
			if first < 0 {
				first = len(jobs)
			}
			var sum, newest int64
			for i, job := range jobs[first:] {
				if !r.exists(r.l.Job(job)) {
					t.Fatalf("step %d: job %d was dropped, but not one that ended before it", step, first+i)
				}
				sum += bytes[job]
			}
			if first > 0 {
				newest = bytes[jobs[first-1]]
			}
			if got.Bytes < sum || got.Bytes > sum+vanished || sum > retainedBytes {
				t.Fatalf("step %d: %d bytes are told, %d are there, %d vanished, %d are the limit", step, got.Bytes, sum, vanished, retainedBytes)
			}
			if first > 0 && sum+newest+vanished <= retainedBytes {
				t.Fatalf("step %d: a record of %d bytes was dropped beside %d, %d vanished", step, newest, sum, vanished)
			}
			jobs, dropped = jobs[first:], dropped+first
		}
		for step := range 40 {
			for range rng.IntN(9) {
				job := r.ended(epoch, rng.IntN(3000))
				jobs, bytes[job] = append(jobs, job), r.recordBytes(job)
			}
			for range rng.IntN(4) {
				if i := rng.IntN(len(jobs) + 5); i < len(jobs) {
					vanished += bytes[jobs[i]]
					r.do("DEL", r.l.Job(jobs[i]))
					jobs = slices.Delete(jobs, i, i+1)
				}
			}
			r.auditDue()
			settle(step)
			if step%10 == 9 {
				r.recount()
				vanished = 0
				settle(step)
			}
		}
		if dropped < 20 {
			t.Errorf("%d records were dropped", dropped)
		}
		r.sound()
	})
}

// TestRetainExpiry: records that expire in their turn are told of for a part at most; others until their part
// is counted again, and never too few.
func TestRetainExpiry(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.RetentionBytes = retainedBytes
		epoch := r.register(testNode("n1", 4))
		twin := &retention{bytes: map[string]int64{}}
		for range 24 {
			job := r.ended(epoch, 200)
			twin.jobs, twin.bytes[job] = append(twin.jobs, job), r.recordBytes(job)
		}
		gone := func(jobs ...string) {
			for _, job := range jobs {
				r.do("DEL", r.l.Job(job))
				twin.bytes[job] = 0
			}
		}
		const part = retainedBytes/64 + 2000
		if got := r.retain(r.Cell, 20); got.Bytes != twin.sum() || got.Dropped != 0 {
			t.Fatalf("%+v, %d bytes are there", got, twin.sum())
		}
		gone(twin.jobs[:9]...)
		if got := r.retain(r.Cell, 20); got.Bytes < twin.sum() || got.Bytes > twin.sum()+part {
			t.Errorf("after some expired %d bytes are told, %d are there", got.Bytes, twin.sum())
		}
		if n := r.int("ZCARD", r.l.Finished()); n != 15 {
			t.Errorf("%d jobs in the index, expected 15", n)
		}
		gone(twin.jobs[12], twin.jobs[13], twin.jobs[20])
		if got := r.retain(r.Cell, 20); got.Bytes < twin.sum() {
			t.Errorf("%d bytes are told, %d are there", got.Bytes, twin.sum())
		}
		if got := r.recount(); got.Bytes != twin.sum() || got.Dropped != 0 {
			t.Errorf("counted again: %+v, %d bytes are there", got, twin.sum())
		}
		gone(twin.jobs...)
		if got := r.retain(r.Cell, 20); got.Bytes != 0 {
			t.Errorf("%d bytes are told, nothing is there", got.Bytes)
		}
		if n := len(r.hash(r.l.Kept())); n > 2 || r.exists(r.l.Finished()) {
			t.Errorf("%d fields are left, and the index: %v", n, r.exists(r.l.Finished()))
		}
	})
}

// TestRetainEdits: what an operator does to the keys costs a count, and no job that has not ended.
func TestRetainEdits(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.RetentionBytes = retainedBytes
		epoch := r.register(testNode("n1", 4))
		running := r.place("", 1, "n1")
		waiting := r.waits("", service("other"))
		many := func(n int) (jobs []string, bytes int64) {
			for range n {
				jobs = append(jobs, r.ended(epoch, 200))
				bytes += r.recordBytes(jobs[len(jobs)-1])
			}
			return jobs, bytes
		}
		jobs, bytes := many(6)
		for name, edit := range map[string]func(){
			"another type": func() { r.do("DEL", r.l.Kept()); r.do("SET", r.l.Kept(), "x") },
			"gone":         func() { r.do("DEL", r.l.Kept()) },
			"no time":      func() { r.do("HSET", r.l.Kept(), "to", "nan") },
			"no number":    func() { r.do("HSET", r.l.Kept(), "b0", "nan") },
			"no part":      func() { r.do("HSET", r.l.Kept(), "b17", "nan") },
			"no audit":     func() { r.do("HSET", r.l.Kept(), "audit", "x") },
		} {
			r.retain(r.Cell, 20)
			edit()
			if got := r.retain(r.Cell, 20); got.Bytes != bytes || got.Dropped != 0 {
				t.Errorf("%s: %+v, expected %d bytes", name, got, bytes)
			}
			if kept := r.hash(r.l.Kept()); kept["b17"] != "" {
				t.Errorf("%s: %v is left", name, kept)
			}
		}
		more, _ := many(40)
		r.do("ZADD", r.l.Finished(), "1", running, "2", waiting, "3", "nobody", "-5", jobs[5])
		r.do("DEL", r.l.Kept())
		r.retain(r.Cell, 20)
		for _, job := range []string{running, waiting} {
			if s := r.status(job); s.State.Terminal() {
				t.Errorf("job %s is %s", job, s.State)
			}
		}
		if r.exists(r.l.Job(jobs[5])) || !r.exists(r.l.Job(more[39])) {
			t.Error("not the oldest was dropped")
		}
		r.end("n1", epoch, running)
		if _, err := r.Cancel(r.ctx(), "", waiting); err != nil {
			t.Fatal(err)
		}
		got := r.recount()
		var sum int64
		for job := range r.scores(r.l.Finished()) {
			sum += r.recordBytes(job)
		}
		if got.Bytes != sum || sum > retainedBytes {
			t.Errorf("%d bytes are told, %d are there, %d are the limit", got.Bytes, sum, retainedBytes)
		}
		r.sound()
	})
}

// TestRetainClock: jobs that ended while Redis' clock was back are found when their part is counted again.
func TestRetainClock(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.RetentionBytes = retainedBytes
		epoch := r.register(testNode("n1", 4))
		var sum int64
		jobs := make([]string, 12)
		for i := range jobs {
			jobs[i] = r.ended(epoch, 200)
			sum += r.recordBytes(jobs[i])
		}
		r.retain(r.Cell, 20)
		for i, at := range []string{strconv.FormatFloat(r.scores(r.l.Finished())[jobs[0]]-9, 'f', 0, 64), strconv.FormatFloat(r.scores(r.l.Finished())[jobs[6]]-0.5, 'f', 1, 64)} {
			late := r.ended(epoch, 300+i)
			r.do("ZADD", r.l.Finished(), at, late)
			sum += r.recordBytes(late)
		}
		if got := r.recount(); got.Bytes != sum {
			t.Errorf("%d bytes are told, %d are there", got.Bytes, sum)
		}
		r.do("HSET", r.l.Kept(), "to", strconv.FormatInt((r.nowMS()+3_600_000)*1000, 10)) // it was ahead
		r.retain(r.Cell, 20)
		sum += r.recordBytes(r.ended(epoch, 100))
		if got := r.retain(r.Cell, 20); got.Bytes != sum {
			t.Errorf("after it was ahead %d bytes are told, %d are there", got.Bytes, sum)
		}
	})
}

// TestRetainTies: jobs that ended in the same microsecond are counted once, also over the end of a page.
func TestRetainTies(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.RetentionBytes = retainedBytes
		epoch := r.register(testNode("n1", 4))
		var sum int64
		var jobs []string
		for range 15 {
			jobs = append(jobs, r.ended(epoch, 200))
			sum += r.recordBytes(jobs[len(jobs)-1])
		}
		scores := r.scores(r.l.Finished())
		for i := range jobs {
			r.do("ZADD", r.l.Finished(), strconv.FormatFloat(scores[jobs[i/3*3]], 'f', 0, 64), jobs[i])
		}
		if got := r.retain(r.Cell, 4); got.Bytes != sum {
			t.Errorf("%d bytes are told, %d are there", got.Bytes, sum)
		}
		if got := r.recount(); got.Bytes != sum {
			t.Errorf("counted again: %d bytes are told, %d are there", got.Bytes, sum)
		}
	})
}

// TestRetainMemory: what is counted is about what Redis uses, and records are dropped also where
// it takes no other writes.
func TestRetainMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target, limited)
	epoch := r.register(testNode("n1", 4))
	usage := func() int64 {
		used, _, _ := strings.Cut(r.infoAfter("memory", "\r\nused_memory:"), "\r")
		n, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	r.cfg.RetentionBytes = 1 << 40
	r.ended(epoch, 10)
	before := usage()
	for range 1000 {
		r.ended(epoch, 500)
	}
	used := usage() - before
	if told := r.retain(r.Cell, 100).Bytes; told < used*8/10 || told > used*13/10 {
		t.Errorf("%d bytes are told, Redis uses %d more than without", told, used)
	}
	r.cfg.RetentionBytes = retainedBytes
	r.do("CONFIG", "SET", "maxmemory", "1")
	defer r.do("CONFIG", "SET", "maxmemory", "0")
	if got := r.retain(r.Cell, 100); got.Bytes > retainedBytes || r.int("ZCARD", r.l.Finished()) > 40 {
		t.Errorf("out of memory: %+v", got)
	}
}

// infoAfter is what INFO says behind a text.
func (r *rig) infoAfter(section, before string) string {
	r.t.Helper()
	m := r.do("INFO", section)
	text, err := m.ToString()
	_, rest, ok := strings.Cut(text, before)
	if err != nil || !ok {
		r.t.Fatalf("INFO %s: %q, %v; want no error, ok", section, text, err)
	}
	return rest
}

// TestRetainKey: an idempotency key outlives the record of its job, and still makes no second one.
func TestRetainKey(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.RetentionBytes = retainedBytes
		epoch := r.register(testNode("n1", 4))
		keyed := func(s *Submission) { s.Job.IdempotencyKey = "k" }
		job := r.waits("", keyed)
		if r.take("n1") != 1 {
			t.Fatal("not taken")
		}
		r.end("n1", epoch, job)
		for range 60 {
			r.ended(epoch, 500)
		}
		r.retain(r.Cell, 20)
		if _, err := r.Job(r.ctx(), "", job); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Fatalf("the record: %v", err)
		}
		again := submission("")
		keyed(&again)
		if p := r.enqueued(again)[0]; p.Owner != job || p.Differs || r.exists(r.l.Job(again.JobID)) {
			t.Errorf("%+v, expected the owner %s and no second job", p, job)
		}
	})
}

// TestRetainList: a listing goes on over records that are dropped on the way.
func TestRetainList(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.RetentionBytes = retainedBytes
		epoch := r.register(testNode("n1", 4))
		var jobs []string
		for range 30 {
			jobs = append(jobs, r.ended(epoch, 600))
		}
		page, err := r.Jobs(r.ctx(), JobFilter{State: freeslot.StateSucceeded}, "", 5)
		if err != nil || len(page.Jobs) != 5 {
			t.Fatalf("%+v, %v, expected 5 jobs", page, err)
		}
		r.retain(r.Cell, 20)
		var seen []string
		for cursor := page.Cursor; cursor != ""; cursor = page.Cursor {
			if page, err = r.Jobs(r.ctx(), JobFilter{State: freeslot.StateSucceeded}, cursor, 5); err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				seen = append(seen, j.ID)
			}
		}
		kept := int(r.int("ZCARD", r.l.Finished()))
		slices.Reverse(jobs)
		if want := jobs[5:kept]; fmt.Sprint(seen) != fmt.Sprint(want) || kept >= 30 {
			t.Errorf("listed %v, expected %v", seen, want)
		}
	})
}
