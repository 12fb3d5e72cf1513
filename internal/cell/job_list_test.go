package cell

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// all pages through a listing.
func (r *rig) all(f JobFilter, limit int) (ids []string, pages int) {
	r.t.Helper()
	for cursor := ""; ; {
		page, err := r.Jobs(r.ctx(), f, cursor, limit)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(page.Jobs) > max(limit, 1) {
			r.t.Errorf("page of %d has %d", limit, len(page.Jobs))
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if pages++; page.Cursor == "" {
			return ids, pages
		}
		if pages > 1000 {
			r.t.Fatal("the listing has no end")
		}
		cursor = page.Cursor
	}
}

func TestJobsListing(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if ids, _ := r.all(JobFilter{}, 10); len(ids) != 0 {
			t.Errorf("an empty cell lists %v", ids)
		}
		var running, cancelling, succeeded, failed []string
		for _, node := range []string{"b", "a", "c"} {
			epoch := r.register(testNode(node, 10))
			r.register(testNode(node+"-idle", 1))
			for range 2 {
				running = append(running, r.place("", 1, node))
				cancelling = append(cancelling, r.place("", 1, node))
				succeeded = append(succeeded, r.place("", 1, node))
				failed = append(failed, r.place("", 1, node))
			}
			for i := range 2 {
				at := len(running) - 2 + i
				if _, err := r.Cancel(r.ctx(), "", cancelling[at]); err != nil {
					t.Fatal(err)
				}
				r.end(node, epoch, succeeded[at])
				comp := succeed(node, epoch, failed[at])
				comp.State, comp.Error = freeslot.StateFailed, &freeslot.JobError{Code: "x"}
				if _, err := r.Complete(r.ctx(), comp); err != nil {
					t.Fatal(err)
				}
			}
		}
		other := submission("", "a")
		other.Tenant = "other"
		if p, err := r.Submit(r.ctx(), other); err != nil || !p.Assigned {
			t.Fatal(p, err)
		}
		everything := slices.Concat(running, cancelling, succeeded, failed, []string{other.JobID})
		r.unchanged("listing", func() {
			for _, c := range []struct {
				f    JobFilter
				want []string
			}{
				{JobFilter{}, everything},
				{JobFilter{Tenant: "acme"}, everything[:len(everything)-1]},
				{JobFilter{Tenant: "other"}, []string{other.JobID}},
				{JobFilter{Tenant: "nobody"}, nil},
				{JobFilter{State: freeslot.StateRunning}, append(slices.Clone(running), other.JobID)},
				{JobFilter{State: freeslot.StateRunning, Tenant: "acme"}, running},
				{JobFilter{State: freeslot.StateCancelling}, cancelling},
				{JobFilter{State: freeslot.StateSucceeded}, succeeded},
				{JobFilter{State: freeslot.StateFailed, Tenant: "acme"}, failed},
				{JobFilter{State: freeslot.StateFailed, Tenant: "other"}, nil},
				{JobFilter{State: freeslot.StateCancelled}, nil},
			} {
				want := slices.Sorted(slices.Values(c.want))
				for _, limit := range []int{-1, 1, 2, 3, 5, 1000} {
					got, _ := r.all(c.f, limit)
					if slices.Sort(got); !slices.Equal(got, want) {
						t.Errorf("%+v in pages of %d: got %d jobs, want %d", c.f, limit, len(got), len(want))
					}
				}
			}
		}, nil)
		// Running ones come by node, then terminal ones, the newest first.
		got, _ := r.all(JobFilter{}, 4)
		ended := got[len(running)+len(cancelling)+1:]
		for i := 1; i < len(ended); i++ {
			if r.scores(r.l.Finished())[ended[i]] > r.scores(r.l.Finished())[ended[i-1]] {
				t.Errorf("terminal job %d is newer than the one before", i)
			}
		}
	})
}

// TestJobsListingWhileJobsEnd: at every page border one more job ends, and none is missed.
func TestJobsListingWhileJobsEnd(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epochs := make(map[string]Epoch)
		type at struct{ node, job string }
		var jobs []at
		for i := range 12 {
			node := fmt.Sprintf("n%d", i%3)
			if epochs[node] == "" {
				epochs[node] = r.register(testNode(node, 10))
			}
			jobs = append(jobs, at{node, r.place("", 1, node)})
		}
		for _, limit := range []int{1, 2, 5} {
			seen := make(map[string]int)
			cursor, ends := "", 0
			for {
				page, err := r.Jobs(r.ctx(), JobFilter{}, cursor, limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range page.Jobs {
					seen[j.ID]++
				}
				if cursor = page.Cursor; cursor == "" {
					break
				}
				if ends < 3 { // from the far end, where the listing has not been yet
					last := jobs[len(jobs)-1]
					r.end(last.node, epochs[last.node], last.job)
					ends++
					jobs = append([]at{last}, jobs[:len(jobs)-1]...)
				}
			}
			for _, j := range jobs {
				if seen[j.job] == 0 {
					t.Errorf("pages of %d missed job %s", limit, j.job)
				}
			}
		}
	})
}

// TestJobsListingNodeLeaves: its jobs wait again, and the next listing has them there.
func TestJobsListingNodeLeaves(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("a", 3))
		r.register(testNode("b", 3))
		jobs := []string{r.place("", 1, "a"), r.place("", 1, "a"), r.place("", 1, "b")}
		if _, err := r.Deregister(r.ctx(), "a", epoch); err != nil {
			t.Fatal(err)
		}
		list := func(f JobFilter) map[string]freeslot.State {
			seen := make(map[string]freeslot.State)
			for cursor := ""; ; {
				page, err := r.Jobs(r.ctx(), f, cursor, 1)
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range page.Jobs {
					seen[j.ID] = j.State
				}
				if cursor = page.Cursor; cursor == "" {
					return seen
				}
			}
		}
		all := map[string]freeslot.State{jobs[0]: freeslot.StateWaiting, jobs[1]: freeslot.StateWaiting, jobs[2]: freeslot.StateRunning}
		if diff := cmp.Diff(all, list(JobFilter{})); diff != "" {
			t.Errorf("all (-want +got):\n%s", diff)
		}
		for _, state := range []freeslot.State{freeslot.StateWaiting, freeslot.StateRunning} {
			want := maps.Clone(all)
			maps.DeleteFunc(want, func(_ string, s freeslot.State) bool { return s != state })
			if diff := cmp.Diff(want, list(JobFilter{State: state})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", state, diff)
			}
		}
	})
}

// TestJobsListingTies: jobs that ended in the same microsecond, as those of two
// calls can when the clock was set back.
func TestJobsListingTies(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		begin := r.nowMS() * 1000
		var want []string
		for i := range int64(tieRoom) {
			job := r.place("", 1, "n1")
			r.end("n1", epoch, job)
			r.do("ZADD", r.l.Finished(), strconv.FormatInt(begin+i/40, 10), job)
			want = append(want, job)
		}
		slices.Sort(want)
		for _, limit := range []int{1, 7, 63, 64, 65} {
			got, _ := r.all(JobFilter{State: freeslot.StateSucceeded}, limit)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("pages of %d brought %d jobs, want %d", limit, len(got), len(want))
			}
		}
	})
}

// TestJobsListingReadsPages: a page reads a part of the jobs that wait, and not all of them. Jobs
// with the same score are listed once each, also if the last one of a page is gone by the next.
func TestJobsListingReadsPages(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	const n, limit = 6000, 100
	record := jobRecord{tenant: "acme", slots: 1, class: echo, attempts: 3, definition: mustJSON(ClassDefinition{Service: "echo"})}
	for i := range n {
		id := NewJobID(0)
		r.do("HSET", r.l.Job(id), "state", string(freeslot.StateScheduled), "job", record.String())
		r.do("ZADD", r.l.Due(), strconv.Itoa(2_000_000_000_000+i/3000), id)
	}
	sent := func() int64 {
		info, err := r.client.Do(r.ctx(), r.client.B().Info().Section("stats").Build()).ToString()
		must(t, err)
		_, text, _ := strings.Cut(info, "total_net_output_bytes:")
		text, _, _ = strings.Cut(text, "\r")
		bytes, err := strconv.ParseInt(text, 10, 64)
		must(t, err)
		return bytes
	}
	seen := map[string]int{}
	for cursor, pages := "", 0; ; pages++ {
		before := sent()
		page, err := r.Jobs(r.ctx(), JobFilter{State: freeslot.StateScheduled}, cursor, limit)
		must(t, err)
		// A record takes about 200 bytes here, and an entry of the index 60; pages of a narrow filter
		// look at up to MaxPage of them.
		if bytes := sent() - before; bytes > 300_000 {
			t.Fatalf("page %d reads %d bytes; want what %d jobs take", pages, bytes, MaxPage)
		}
		for _, j := range page.Jobs {
			seen[j.ID]++
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
		if pages%2 == 0 {
			r.do("ZREM", r.l.Due(), page.Jobs[len(page.Jobs)-1].ID)
		}
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("job %s is listed %d times; want once", id, times)
		}
	}
	if len(seen) != n {
		t.Errorf("%d jobs are listed; want %d", len(seen), n)
	}
}

// TestJobsListingLeavesResultsOut: whatever their size, a page does not carry them.
func TestJobsListingLeavesResultsOut(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		comp := succeed("n1", epoch, job)
		comp.Result = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
		if out, err := r.Complete(r.ctx(), comp); err != nil || out != Completed {
			t.Fatal(out, err)
		}
		page, err := r.Jobs(r.ctx(), JobFilter{}, "", 10)
		if err != nil || len(page.Jobs) != 1 || page.Jobs[0].State != freeslot.StateSucceeded || page.Jobs[0].Result != nil {
			t.Errorf("%d jobs, %v", len(page.Jobs), err)
		}
		if whole, err := r.Job(r.ctx(), "", job); err != nil || len(whole.Result) != len(comp.Result) {
			t.Errorf("%d bytes of result, %v", len(whole.Result), err)
		}
	})
}

// TestCursorOfAnotherTenant: it is refused, and one that is made up leads to the reader's own jobs.
func TestCursorOfAnotherTenant(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 3))
		foreign := submission("", "n1")
		foreign.Tenant = "other"
		if p, err := r.Submit(r.ctx(), foreign); err != nil || !p.Assigned {
			t.Fatal(p, err)
		}
		first, second := r.place("", 1, "n1"), r.place("", 1, "n1")
		own, err := r.Jobs(r.ctx(), JobFilter{Tenant: "acme"}, "", 1)
		if err != nil || own.Cursor == "" {
			t.Fatalf(`%+v, %v; want no error, own.Cursor != ""`, own, err)
		}
		for _, reader := range []string{"other", ""} {
			_, err := r.Jobs(r.ctx(), JobFilter{Tenant: reader}, own.Cursor, 10)
			var refused *freeslot.Error
			if !errors.As(err, &refused) || refused.Code != freeslot.CodeInvalidArgument || refused.Field != "cursor" {
				t.Errorf("reader %q: %v", reader, err)
			}
		}
		rest, err := r.Jobs(r.ctx(), JobFilter{Tenant: "acme"}, own.Cursor, 10)
		if err != nil || len(own.Jobs)+len(rest.Jobs) != 2 {
			t.Errorf("%+v and %+v, %v, expected %s and %s", own, rest, err, first, second)
		}
		for _, at := range []position{{place: "n1"}, {finished: true}, {}} {
			page, err := r.Jobs(r.ctx(), JobFilter{Tenant: "other"}, at.cursor("other"), 10)
			if err != nil || slices.ContainsFunc(page.Jobs, func(s freeslot.JobStatus) bool { return s.Tenant != "other" }) {
				t.Errorf(`%+v: %+v, %v; want no error, not slices.ContainsFunc(page.Jobs, func(s freeslot.JobStatus) bool { return s.Tenant != "other" })`, at, page, err)
			}
		}
	})
}

// TestJobsListingExpired: a record that ran out before its index entry is passed.
func TestJobsListingExpired(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		var jobs []string
		for range 4 {
			jobs = append(jobs, r.place("", 1, "n1"))
			r.end("n1", epoch, jobs[len(jobs)-1])
		}
		r.do("DEL", r.l.Job(jobs[3]))
		r.do("DEL", r.l.Job(jobs[1]))
		if got, pages := r.all(JobFilter{State: freeslot.StateSucceeded}, 1); !slices.Equal(got, []string{jobs[2], jobs[0]}) || pages != 2 {
			t.Errorf("%v in %d pages, want %s and %s on two", got, pages, jobs[2], jobs[0])
		}
	})
}

func TestJobsBadCursor(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 1))
		for _, cursor := range []string{
			"x", "~", "f~x~y", "f~nan~", "f~NaN~", "f~inf~a", "f~-1~a", "f~1e400~a", "f~0x10~a", "f~1.5~a", "f~ 1~a", "F~~", "1", "é~~", "CA", "AA", "_w",
		} {
			_, err := r.Jobs(r.ctx(), JobFilter{}, cursor, 10)
			wantErr(t, err, freeslot.CodeInvalidArgument)
		}
		for _, at := range []position{{}, {place: "zzz"}, {place: "é:{}", job: "*"}, {finished: true}, {finished: true, place: "9007199254740993", job: "a"}} {
			if _, err := r.Jobs(r.ctx(), JobFilter{}, at.cursor(""), 10); err != nil {
				t.Errorf("%+v: %v; want no error", at, err)
			}
		}
		for _, place := range []string{"x", "-1", "1.5", "NaN", " 1"} {
			at := position{finished: true, place: place}
			_, err := r.Jobs(r.ctx(), JobFilter{}, at.cursor(""), 10)
			wantErr(t, err, freeslot.CodeInvalidArgument)
			at = position{line: true, place: place}
			_, err = r.Jobs(r.ctx(), JobFilter{Class: "0123456789abcdef"}, at.cursor(""), 10)
			wantErr(t, err, freeslot.CodeInvalidArgument)
		}
		for _, text := range []string{"", "n", "n~~", reader("") + "~~", "~" + reader("") + "~~", "x~" + reader("") + "~~", "l~" + reader("") + "~~"} {
			cursor := base64.RawURLEncoding.EncodeToString([]byte(text))
			if cursor == "" {
				cursor = "\n" // which decodes to nothing
			}
			_, err := r.Jobs(r.ctx(), JobFilter{}, cursor, 10)
			wantErr(t, err, freeslot.CodeInvalidArgument)
		}
	})
}
