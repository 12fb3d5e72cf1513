package bulk

import (
	"context"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// MaxTargets is the most targets of one operation.
const MaxTargets = 10_000

// mostPages and findTime bound how many pages of jobs one plan reads. Where few of many jobs fit,
// it is not complete.
const (
	mostPages = 4 * MaxTargets / cell.MaxPage
	findTime  = 3 * time.Second
)

// Jobs lists what the package calls of *dispatch.Dispatcher.
type Jobs interface {
	Jobs(ctx context.Context, f cell.JobFilter, cursor string, limit int) (cell.JobPage, error)
	Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
	CancelIf(ctx context.Context, tenant, jobID string, seen cell.Seen) (freeslot.JobStatus, error)
	Drop(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
}

// Nodes lists what the package calls of *cache.Cache.
type Nodes interface {
	AllNodes() []*selection.Node
	Config() *selection.Config
}

// found is what a plan has found.
type found struct {
	targets                  []string
	again                    int // jobs that were submitted again before
	complete                 bool
	services, tenants, codes map[string]int
}

func (f *found) add(j *freeslot.JobStatus) {
	f.services[j.Service]++
	f.tenants[j.Tenant]++
	if j.Error != nil {
		f.codes[string(j.Error.Code)]++
	}
}

// finder finds the targets of plans.
type finder struct {
	jobs Jobs
	// byID is Set.JobsByID.
	byID  func(ctx context.Context, ids []string) ([]freeslot.JobStatus, map[int]error)
	nodes Nodes
}

func (f *finder) find(ctx context.Context, tenant string, r *BulkRequest) (*found, error) {
	into := &found{complete: true, services: map[string]int{}, tenants: map[string]int{}, codes: map[string]int{}}
	switch {
	case r.Filter == nil:
		return into, f.named(ctx, tenant, r, into)
	case r.Action.ofNodes():
		f.ofNodes(r.Filter, into)
		return into, nil
	default:
		return into, f.ofJobs(ctx, tenant, r, into)
	}
}

// named takes ids as they are; one that is not there any more comes out as not_found.
func (f *finder) named(ctx context.Context, tenant string, r *BulkRequest, into *found) error {
	into.targets = slices.Compact(slices.Sorted(slices.Values(r.IDs)))
	if r.Action.ofNodes() {
		return nil
	}
	for ids := range slices.Chunk(into.targets, cell.MaxPage) {
		jobs, failed := f.byID(ctx, ids)
		for _, err := range failed {
			return err
		}
		for i := range jobs {
			if tenant == "" || jobs[i].Tenant == tenant {
				into.add(&jobs[i])
			}
		}
	}
	return nil
}

func (f *finder) ofNodes(by *BulkFilter, into *found) {
	takes := f.nodes.Config().Filter(&freeslot.Requirement{Pool: by.Pool, Services: by.Services})
	for _, n := range f.nodes.AllNodes() {
		if takes(n.Profile()) {
			into.targets = append(into.targets, n.ID())
		}
	}
	slices.Sort(into.targets)
	if len(into.targets) > MaxTargets {
		into.targets, into.complete = into.targets[:MaxTargets], false
	}
}

func (f *finder) ofJobs(ctx context.Context, tenant string, r *BulkRequest, into *found) error {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	filter := r.Filter.jobs()
	if tenant != "" {
		if filter.Tenant != "" && filter.Tenant != tenant {
			return &freeslot.Error{
				Code: freeslot.CodePermissionDenied, Field: "filter.tenant", Message: "is another tenant than the caller's",
			}
		}
		filter.Tenant = tenant
	}
	cursor, seen := "", map[string]bool{}
	for range mostPages {
		page, err := f.jobs.Jobs(ctx, filter, cursor, cell.MaxPage)
		if ctx.Err() != nil && len(into.targets) > 0 {
			break
		}
		if err != nil {
			return err
		}
		into.complete = into.complete && len(page.Unreachable) == 0
		for i := range page.Jobs {
			j := &page.Jobs[i]
			if seen[j.ID] || !r.Action.takes(j.State) { // a job that changes meanwhile can come twice
				continue
			}
			if r.Action == Requeue && j.RequeuedAs != "" {
				into.again++
				continue
			}
			if len(into.targets) == MaxTargets {
				into.complete = false
				return nil
			}
			seen[j.ID] = true
			into.targets = append(into.targets, j.ID)
			into.add(j)
		}
		if cursor = page.Cursor; cursor == "" {
			return nil
		}
	}
	into.complete = false
	return nil
}
