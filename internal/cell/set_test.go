package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// fleet is a set of cells with nodes and jobs in all of them.
type fleet struct {
	*Set
	t      *testing.T
	epochs map[string]Epoch
	// owned and ended are the jobs in the order of a listing.
	owned, ended []string
}

// newFleet makes nodes with two jobs each, of which the second has ended, one after
// the other.
func newFleet(t *testing.T, s *Set, nodes int) *fleet {
	t.Helper()
	f := &fleet{Set: s, t: t, epochs: make(map[string]Epoch)}
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%02d", i)
	}
	for _, name := range names {
		c := s.OfNode(name)
		f.epochs[name] = NewEpoch()
		if _, err := c.Register(t.Context(), testNode(name, 2), f.epochs[name]); err != nil {
			t.Fatal(err)
		}
		f.owned = append(f.owned, f.place(name))
		job := f.place(name)
		if out, err := c.Complete(t.Context(), succeed(name, f.epochs[name], job)); err != nil || out != Completed {
			t.Fatal(out, err)
		}
		f.ended = append([]string{job}, f.ended...)
	}
	return f
}

func (f *fleet) place(node string) string {
	f.t.Helper()
	sub := submission("", node)
	sub.JobID = f.OfNode(node).NewJobID()
	if p, err := f.OfNode(node).Submit(f.t.Context(), sub); err != nil || !p.Assigned {
		f.t.Fatal(p, err)
	}
	return sub.JobID
}

// list pages through a listing; unreachable are the cells that any page named.
func (f *fleet) list(filter JobFilter, limit int) (ids []string, unreachable []int) {
	f.t.Helper()
	for cursor, pages := "", 0; ; pages++ {
		page, err := f.Jobs(f.t.Context(), filter, cursor, limit)
		if err != nil || len(page.Jobs) > limit || pages > 100 {
			f.t.Fatal(len(page.Jobs), pages, err)
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		unreachable = append(unreachable, page.Unreachable...)
		if cursor = page.Cursor; cursor == "" {
			slices.Sort(unreachable)
			return ids, slices.Compact(unreachable)
		}
	}
}

func cellOf(t *testing.T, id string) int {
	t.Helper()
	i, ok := JobCell(id)
	if !ok {
		t.Fatalf("%q is no job id", id)
	}
	return i
}

func TestSetJobs(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		for _, cells := range []int{2, 4} {
			f := newFleet(t, newSet(t, redis.Prefix(t), cells, redis), 10)
			for _, limit := range []int{1, 3, 7, 10, 11, 20, 500} {
				got, unreachable := f.list(JobFilter{}, limit)
				if want := slices.Concat(f.owned, f.ended); !slices.Equal(got, want) || unreachable != nil {
					t.Errorf("%d cells, pages of %d: %v, unreachable %v\nwant %v", cells, limit, got, unreachable, want)
				}
				if got, _ := f.list(JobFilter{State: freeslot.StateSucceeded}, limit); !slices.Equal(got, f.ended) {
					t.Errorf("%d cells, terminal ones in pages of %d: %v", cells, limit, got)
				}
				if got, _ := f.list(JobFilter{State: freeslot.StateRunning}, limit); !slices.Equal(got, f.owned) {
					t.Errorf("%d cells, running ones in pages of %d: %v", cells, limit, got)
				}
				if got, _ := f.list(JobFilter{Tenant: "nobody"}, limit); got != nil {
					t.Errorf("%d cells: %v", cells, got)
				}
			}
			if used := len(slices.Compact(slices.Sorted(func(yield func(int) bool) {
				for _, id := range f.owned {
					if !yield(cellOf(t, id)) {
						return
					}
				}
			}))); used != cells {
				t.Errorf("the jobs are in %d of %d cells", used, cells)
			}
		}
	})
}

// TestSetOfJob: each call goes to the job's cell.
func TestSetOfJob(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		const cells = 3
		f := newFleet(t, newSet(t, redis.Prefix(t), cells, redis), 6)
		jobs, failed := f.JobsByID(t.Context(), append(slices.Concat(f.owned, f.ended), "x", NewJobID(1), NewJobID(cells)))
		if len(jobs) != 12 || failed != nil {
			t.Errorf("%d jobs, %v", len(jobs), failed)
		}
		for _, id := range f.owned {
			if s, err := f.Job(t.Context(), "acme", id); err != nil || s.ID != id {
				t.Error(s, err)
			}
			if s, err := f.Attach(t.Context(), "acme", id, "r1"); err != nil || s.State != freeslot.StateRunning {
				t.Error(s, err)
			}
			if _, tenant, err := f.Spec(t.Context(), id); err != nil || tenant != "acme" {
				t.Error(tenant, err)
			}
			if s, err := f.Cancel(t.Context(), "acme", id); err != nil || s.State != freeslot.StateCancelling {
				t.Error(s, err)
			}
		}
		for id, want := range map[string]struct {
			code    freeslot.Code
			message string
		}{
			NewJobID(1):     {freeslot.CodeNotFound, "there is no job 1-"},
			NewJobID(cells): {freeslot.CodeNotFound, ": its id names cell 3, and there are 3, from 0"},
			"x":             {freeslot.CodeInvalidArgument, "job_id is not a job id"},
		} {
			for name, call := range map[string]func() error{
				"job":    func() error { _, err := f.Job(t.Context(), "", id); return err },
				"cancel": func() error { _, err := f.Cancel(t.Context(), "", id); return err },
				"attach": func() error { _, err := f.Attach(t.Context(), "", id, "r1"); return err },
				"spec":   func() error { _, _, err := f.Spec(t.Context(), id); return err },
			} {
				if err := call(); freeslot.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.message) {
					t.Errorf("%s of %s: %v", name, id, err)
				}
			}
		}
		if shares, failed := f.MemoryUse(t.Context()); len(shares) != cells || failed != nil {
			t.Error(shares, failed)
		}
	})
}

// TestSetWithOneServerDown: the other cells answer, and what is missing is named.
func TestSetWithOneServerDown(t *testing.T) {
	t.Parallel()
	up, down := redistest.New(t), redistest.New(t)
	s := newSet(t, up.Prefix(t), 2, up.Target, down.Target)
	f := newFleet(t, s, 10)
	here := rig{Cell: s.At(0), t: t, redis: up.Target, raw: s.At(0).client, l: s.At(0).layout}
	keyed := here.waits("", func(s *Submission) { s.Job.IdempotencyKey = "here" })
	s = s.withTimeout(t, 200*time.Millisecond)
	f.Set = s
	down.Kill()
	mine := func(ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return cellOf(t, id) != 0 })
	}
	got, unreachable := f.list(JobFilter{}, 3)
	if want := slices.Concat([]string{keyed}, mine(f.owned), mine(f.ended)); !slices.Equal(got, want) || !slices.Equal(unreachable, []int{1}) {
		t.Errorf("%v, unreachable %v, want %v", got, unreachable, want)
	}
	jobs, failed := s.JobsByID(t.Context(), f.owned)
	if len(jobs) != len(mine(f.owned)) || len(failed) != 1 || failed[1] == nil {
		t.Errorf("%d jobs, %v", len(jobs), failed)
	}
	ours := JobFilter{Tenant: "acme"}
	if page, err := s.JobsByKey(t.Context(), ours, "here"); err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != keyed {
		t.Errorf("by a key of the cell that answers: %+v, %v; want job %s", page.Jobs, err, keyed)
	}
	if page, err := s.JobsByKey(t.Context(), ours, "there"); err == nil {
		t.Errorf("by a key that the other cell may have: %+v; want an error", page)
	}
	if shares, failed := s.MemoryUse(t.Context()); len(shares) != 2 || len(failed) != 1 || failed[1] == nil {
		t.Error(shares, failed)
	}
	up.Kill()
	if page, err := s.Jobs(t.Context(), JobFilter{}, "", 3); err == nil {
		t.Errorf("with no server at all: %+v", page)
	}
}

// TestSetStops: all cells stop, also where nothing was started.
func TestSetStops(t *testing.T) {
	t.Parallel()
	s := newSet(t, redistest.Shared(t).Prefix(t), 3, redistest.Shared(t))
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, c := range s.All() {
		if _, err := c.Submit(context.Background(), submission("", "n")); !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	}
	if s.Len() != 3 || s.OfNode("node-1") != s.At(NodeCell("node-1", 3)) {
		t.Error("a node is in another cell")
	}
}

// TestListingOrder holds the merge against sorting everything.
func TestListingOrder(t *testing.T) {
	t.Parallel()
	order := func(a, b listed) int { return cmp.Compare(a.job, b.job) }
	cells := []*Cell{{}, {}, {}}
	l := &listing{set: NewSet(cells...), failed: make(map[int]error)}
	parts := map[*Cell][]listed{cells[0]: {{job: "b"}, {job: "d"}}, cells[1]: {{job: "a"}, {job: "e"}}, cells[2]: nil}
	got := l.merge(3, order, func(c *Cell) ([]listed, error) { return slices.Clone(parts[c]), nil })
	if want := []listed{{cell: 1, job: "a"}, {job: "b"}, {job: "d"}}; !slices.Equal(got, want) {
		t.Errorf("%+v; want slices.Equal(got, want)", got)
	}
	l.failed[1] = errors.New("down")
	got = l.merge(9, order, func(c *Cell) ([]listed, error) { return slices.Clone(parts[c]), nil })
	if want := []listed{{job: "b"}, {job: "d"}}; !slices.Equal(got, want) {
		t.Errorf("%+v; want slices.Equal(got, want)", got)
	}
}
