package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/freeslot/freeslot"
)

const (
	// planTime bounds the time between a plan and its start.
	planTime = 15 * time.Minute
	// mostOfTenant and mostOfAll bound the plans and operations that are kept. A new plan takes the
	// place of the oldest one that does not run.
	mostOfTenant = 8
	mostOfAll    = 64
	// mostRunning bounds the operations under way, runningOfTenant the share of one tenant.
	mostRunning     = 8
	runningOfTenant = 2
)

// Service makes plans, and starts and stops operations. It is safe for concurrent use.
type Service struct {
	store  *store
	finder finder
	wake   func(id string) // has this replica work on an operation
}

// Plan finds the targets of an action, and keeps them for 15 minutes. tenant is whose jobs the
// caller may touch; "" means all.
func (s *Service) Plan(ctx context.Context, tenant string, r *BulkRequest) (*BulkOperation, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	found, err := s.finder.find(ctx, tenant, r)
	if err != nil {
		return nil, err
	}
	nowMS, err := s.makeRoom(ctx, tenant)
	if err != nil {
		return nil, err
	}
	plan := record{BulkOperation: &BulkOperation{
		ID: ulid.Make().String(), Action: r.Action, State: Planned, Tenant: tenant, Filter: r.Filter,
		Count: len(found.targets), Again: found.again, Complete: found.complete,
		Samples:  slices.Clone(found.targets[:min(10, len(found.targets))]),
		Services: bound(found.services), Tenants: bound(found.tenants), Codes: bound(found.codes),
		PlannedMS: nowMS, ExpiresMS: nowMS + planTime.Milliseconds(), Outcomes: map[string]int{},
	}}
	return plan.BulkOperation, s.store.write(ctx, &plan, found.targets)
}

// makeRoom removes plans that lapsed, and the oldest operations beyond the bounds. It returns
// Redis' clock.
func (s *Service) makeRoom(ctx context.Context, tenant string) (nowMS int64, err error) {
	all, nowMS, err := s.store.all(ctx)
	if err != nil {
		return 0, err
	}
	kept, own := 0, 0
	for i := range all { // the latest first
		o := &all[i]
		keep := kept < mostOfAll-1 && (o.Tenant != tenant || own < mostOfTenant-1)
		if keep = keep && (o.State != Planned || nowMS < o.ExpiresMS) || o.State == Running; !keep {
			if err := s.store.remove(ctx, o); err != nil && !errors.Is(err, errChanged) {
				return 0, err
			}
			continue
		}
		kept++
		if o.Tenant == tenant {
			own++
		}
	}
	return nowMS, nil
}

// Start starts a plan. count is the number of targets that the caller knows of. It returns a
// conflict if the plan has another number, has lapsed or was started.
func (s *Service) Start(ctx context.Context, tenant, id string, count int, by, reason string) (*BulkOperation, error) {
	all, nowMS, err := s.store.all(ctx)
	if err != nil {
		return nil, err
	}
	running, own, at := 0, 0, -1
	for i := range all {
		if all[i].ID == id && all[i].may(tenant) {
			at = i
		}
		if all[i].State == Running {
			running++
			if all[i].Tenant == tenant {
				own++
			}
		}
	}
	switch {
	case at < 0 || all[at].State == Planned && nowMS >= all[at].ExpiresMS:
		return nil, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "plan",
			Message: "there is no plan " + id + " any more, which is kept for 15 minutes: plan again, and look at what it says",
		}
	case all[at].State != Planned:
		return nil, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "plan",
			Message: fmt.Sprintf("plan %s was started already, and is %s", id, all[at].State),
		}
	case all[at].Count != count:
		return nil, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "count",
			Message: fmt.Sprintf("count is %d, and plan %s has %d targets; nothing was done", count, id, all[at].Count),
		}
	case running >= mostRunning || own >= runningOfTenant:
		return nil, &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: 10 * time.Second,
			Message: fmt.Sprintf(
				"%d operations run, %d of them of this tenant, of at most %d and %d: wait for one or stop it",
				running, own, mostRunning, runningOfTenant,
			),
		}
	}
	o := &all[at]
	o.State, o.StartedMS, o.ExpiresMS, o.By, o.Reason = Running, nowMS, 0, by, reason
	if err := s.store.write(ctx, o, nil); err != nil {
		return nil, changed(err)
	}
	s.wake(id)
	return o.BulkOperation, nil
}

// Stop ends an operation before its next targets; one that is over stays as it is.
func (s *Service) Stop(ctx context.Context, tenant, id string) (*BulkOperation, error) {
	for {
		o, err := s.get(ctx, tenant, id)
		if err != nil {
			return nil, err
		}
		switch {
		case o.State == Planned:
			o.State, o.EndedMS = Stopped, o.nowMS
		case o.State == Running && !o.Stopping:
			o.Stopping = true
		default:
			return o.BulkOperation, nil
		}
		// The replica that works on it writes twice a second.
		if err = s.store.write(ctx, o, nil); !errors.Is(err, errChanged) {
			return o.BulkOperation, err
		}
	}
}

// Get returns one plan or operation.
func (s *Service) Get(ctx context.Context, tenant, id string) (*BulkOperation, error) {
	o, err := s.get(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	return o.BulkOperation, nil
}

func (s *Service) get(ctx context.Context, tenant, id string) (*record, error) {
	o, _, err := s.store.read(ctx, id)
	if err == nil && (o.BulkOperation == nil || !o.may(tenant)) {
		err = &freeslot.Error{Code: freeslot.CodeNotFound, Field: "id", Message: "there is no operation " + id}
	}
	return &o, err
}

// List returns the plans and operations that are kept, the latest first.
func (s *Service) List(ctx context.Context, tenant string) ([]BulkOperation, error) {
	all, _, err := s.store.all(ctx)
	found := []BulkOperation{}
	for _, o := range all {
		if o.may(tenant) {
			found = append(found, *o.BulkOperation)
		}
	}
	return found, err
}

func changed(err error) error {
	if !errors.Is(err, errChanged) {
		return err
	}
	return &freeslot.Error{Code: freeslot.CodeConflict, Message: "somebody else changed it at the same time: look again"}
}
