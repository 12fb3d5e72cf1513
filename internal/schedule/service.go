package schedule

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	// MaxPage is the most schedules of one page.
	MaxPage = 100
	// MaxRuns is the most coming runs that Get returns.
	MaxRuns = 100

	// tries bounds the attempts at a change when others' changes come first.
	tries = 8
)

// Service manages schedules. It is safe for concurrent use. Its errors are *freeslot.Error, or come
// from Redis.
type Service struct {
	store      store
	maxPayload int
	bounds     func(tenant string) Bounds
}

// Bounds limits the schedules of one tenant. Schedules that are made at the same moment can pass
// them.
type Bounds struct {
	// Schedules is how many there may be. Bytes bounds the sum of their definitions, which are
	// mostly payloads.
	Schedules int
	Bytes     int64
}

// DefaultBounds are the bounds of a tenant unless others are configured.
var DefaultBounds = Bounds{Schedules: 100, Bytes: 16 << 20}

// NewService makes a service on the cells of a system. maxPayload bounds the payloads of templates,
// in bytes; 0 means freeslot.DefaultMaxPayloadBytes. bounds returns the bounds of a tenant; nil
// means DefaultBounds.
func NewService(runners []*script.Runner, maxPayload int, bounds func(tenant string) Bounds) *Service {
	if maxPayload == 0 {
		maxPayload = freeslot.DefaultMaxPayloadBytes
	}
	if bounds == nil {
		bounds = func(string) Bounds { return DefaultBounds }
	}
	return &Service{store: newStore(runners), maxPayload: maxPayload, bounds: bounds}
}

// Put makes a schedule, or replaces the schedule with this name. If nothing differs, the schedule
// keeps its version. created is true if there was none.
func (s *Service) Put(
	ctx context.Context, tenant, name string, change *Change,
) (status Schedule, created bool, err error) {
	compute, err := s.put(ctx, tenant, change, &created)
	if err != nil {
		return Schedule{}, false, err
	}
	status, err = s.change(ctx, tenant, name, compute)
	return status, created, err
}

// Preview returns the schedule that Put would make now, with this many of its coming runs, at most
// MaxRuns, or the error that Put would return. It changes nothing.
func (s *Service) Preview(
	ctx context.Context, tenant, name string, change *Change, runs int,
) (status Schedule, created bool, err error) {
	compute, err := s.put(ctx, tenant, change, &created)
	if err != nil {
		return Schedule{}, false, err
	}
	f, err := s.find(ctx, tenant, name)
	if err != nil {
		return Schedule{}, false, err
	}
	next, _, err := compute(f)
	if err != nil {
		return Schedule{}, false, err
	}
	if next != nil {
		f.state = next
	}
	status = scheduleOf(f.record.id, f.schedule, f.state)
	status.NextRunsMS = comingRuns(f, min(runs, MaxRuns))
	return status, created, nil
}

// put validates a change, and returns what computes the next state from what is stored. That sets
// created.
func (s *Service) put(
	ctx context.Context, tenant string, change *Change, created *bool,
) (compute func(*found) (*state, string, error), err error) {
	if err = change.Validate(); err == nil {
		err = wire.CheckPayload("job", &change.Job, s.maxPayload)
	}
	if err != nil {
		return nil, err
	}
	e, err := cron.Parse(change.Cron, change.TimeZone)
	if err != nil {
		return nil, err
	}
	definition, err := change.Definition.encode()
	if err != nil {
		return nil, err
	}
	roomy := false
	return func(f *found) (*state, string, error) {
		if err := checkVersion(change.Version, f.state); err != nil {
			return nil, "", err
		}
		paused := change.Pause != nil && *change.Pause
		if !roomy && f.record.definition != definition {
			if err := s.room(ctx, tenant, definition, f.record.definition); err != nil {
				return nil, "", err
			}
			roomy = true
		}
		if *created = f.state == nil; *created {
			f.schedule = &change.Definition
			// A schedule that cannot be read is replaced, too.
			return newState(&e, f.nowMS, paused), definition, nil
		}
		if change.Pause == nil {
			paused = f.state.Paused
		}
		if f.record.definition == definition && f.state.Paused == paused {
			return nil, "", nil
		}
		next := f.state.step()
		next.Version, next.UpdatedMS = next.Version+1, f.nowMS
		if f.schedule.Cron != change.Cron || f.schedule.TimeZone != change.TimeZone || next.Paused != paused ||
			next.NextMS == 0 {
			next.NextMS = e.NextMS(max(f.nowMS, next.LastMS))
		}
		next.Paused, f.schedule = paused, &change.Definition
		return next, definition, nil
	}, nil
}

func checkVersion(want *uint64, st *state) error {
	current := uint64(0)
	if st != nil {
		current = st.Version
	}
	if want == nil || *want == current {
		return nil
	}
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Field: "version",
		Message: fmt.Sprintf(
			"version is %d, and the schedule is at %d (0 is none): make the change in what it is now", *want, current,
		),
	}
}

// room returns an error if a tenant has no room for a schedule with this definition. before is the
// definition that it replaces; "" for a new schedule.
func (s *Service) room(ctx context.Context, tenant, definition, before string) error {
	used, err := s.store.used(ctx, tenant)
	if err != nil {
		return err
	}
	bounds, overloaded := s.bounds(tenant), func(format string, args ...any) error {
		return &freeslot.Error{Code: freeslot.CodeOverloaded, Message: fmt.Sprintf(format, args...)}
	}
	if before == "" && used.Schedules >= bounds.Schedules {
		return overloaded("tenant %s has %d schedules, expected at most max_schedules, %d: delete one first",
			tenant, used.Schedules, bounds.Schedules)
	}
	if bytes := used.Bytes + int64(len(definition)-len(before)); len(definition) > len(before) && bytes > bounds.Bytes {
		return overloaded("the schedules of tenant %s would take %d bytes, expected at most max_schedule_bytes, %d",
			tenant, bytes, bounds.Bytes)
	}
	return nil
}

// Get reads a schedule with this many of its coming runs, at most MaxRuns.
func (s *Service) Get(ctx context.Context, tenant, name string, runs int) (Schedule, error) {
	f, err := s.find(ctx, tenant, name)
	if err != nil {
		return Schedule{}, err
	}
	if f.broken != nil {
		return Schedule{}, f.unreadable()
	}
	if f.state == nil {
		return Schedule{}, notFound(name)
	}
	status := scheduleOf(f.record.id, f.schedule, f.state)
	status.NextRunsMS = comingRuns(f, min(runs, MaxRuns))
	return status, nil
}

// comingRuns returns the next runs. For a paused schedule these are the runs that it would have.
func comingRuns(f *found, n int) (runs []int64) {
	e, err := cron.Parse(f.schedule.Cron, f.schedule.TimeZone)
	if err != nil {
		return nil // cannot happen: it was validated
	}
	at := f.state.NextMS
	if f.state.Paused {
		at = e.NextMS(max(f.nowMS, f.state.LastMS))
	}
	for ; len(runs) < n && at != 0; at = e.NextMS(at) {
		runs = append(runs, at)
	}
	return runs
}

// List reads schedules in the order of their tenants and names; tenant "" means all. It leaves out
// schedules that an operator's edit made unreadable.
func (s *Service) List(ctx context.Context, tenant, cursor string, limit int) (SchedulePage, error) {
	if _, _, ok := splitID(cursor); cursor != "" && !ok {
		return SchedulePage{}, freeslot.Invalid("cursor", "is not one of a listing of schedules")
	}
	found, err := s.store.list(ctx, tenant, cursor, min(max(limit, 1), MaxPage))
	if err != nil {
		return SchedulePage{}, err
	}
	page := SchedulePage{Schedules: make([]Schedule, 0, len(found.records)), nowMS: found.nowMS}
	for _, r := range found.records {
		if f := decodeFound(r, found.nowMS); f.broken == nil && f.state != nil {
			page.Schedules = append(page.Schedules, scheduleOf(r.id, f.schedule, f.state))
		}
	}
	if found.more {
		page.Cursor = found.records[len(found.records)-1].id
	}
	return page, nil
}

// Pause keeps a schedule from running until Resume. A run that is being made is finished.
func (s *Service) Pause(ctx context.Context, tenant, name string) (Schedule, error) {
	return s.pause(ctx, tenant, name, true)
}

// Resume lets a schedule run again, from its next run on. The runs during the pause do not count as
// missed.
func (s *Service) Resume(ctx context.Context, tenant, name string) (Schedule, error) {
	return s.pause(ctx, tenant, name, false)
}

func (s *Service) pause(ctx context.Context, tenant, name string, paused bool) (Schedule, error) {
	return s.change(ctx, tenant, name, func(f *found) (*state, string, error) {
		switch {
		case f.broken != nil:
			return nil, "", f.unreadable()
		case f.state == nil:
			return nil, "", notFound(name)
		case f.state.Paused == paused:
			return nil, "", nil
		}
		e, err := cron.Parse(f.schedule.Cron, f.schedule.TimeZone)
		if err != nil {
			return nil, "", err
		}
		next := f.state.step()
		next.Version, next.UpdatedMS, next.Paused = next.Version+1, f.nowMS, paused
		next.NextMS = e.NextMS(max(f.nowMS, next.LastMS))
		return next, "", nil
	})
}

// Delete drops a schedule, and returns it as it was. If version is not nil, it must be the
// schedule's. A run that is being made may still create its job. Jobs that were created go on.
func (s *Service) Delete(ctx context.Context, tenant, name string, version *uint64) (Schedule, error) {
	for range tries {
		f, err := s.find(ctx, tenant, name)
		if err != nil {
			return Schedule{}, err
		}
		c := s.store.of(f.record.id)
		if f.record.state == "" && f.record.definition == "" {
			return Schedule{}, cmp.Or(c.runner.Confirm(ctx), notFound(name))
		}
		if err := checkVersion(version, f.state); err != nil {
			return Schedule{}, err
		}
		made, err := c.write(ctx, write{id: f.record.id, seen: f.record.state, confirmed: true})
		if err != nil {
			return Schedule{}, err
		}
		if made && f.state != nil && f.schedule != nil {
			return scheduleOf(f.record.id, f.schedule, f.state), nil
		}
		if made {
			return Schedule{Name: name, Tenant: tenant}, nil
		}
	}
	return Schedule{}, busy(name)
}

// found is a schedule as read from Redis.
type found struct {
	record   record
	nowMS    int64
	schedule *Definition // nil if it cannot be read, or does not exist
	state    *state      // nil likewise
	broken   error
}

func (f *found) unreadable() error {
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Field: "name",
		Message: fmt.Sprintf(
			"name is that of a schedule that was edited in Redis and cannot be read: put it anew, or delete it (%v)", f.broken,
		),
	}
}

func (s *Service) find(ctx context.Context, tenant, name string) (*found, error) {
	if err := freeslot.ValidateName("name", name); err != nil {
		return nil, err
	}
	if err := freeslot.ValidateName("tenant", tenant); err != nil {
		return nil, err
	}
	id := idOf(tenant, name)
	record, now, err := s.store.of(id).read(ctx, id)
	if err != nil {
		return nil, err
	}
	return decodeFound(record, now), nil
}

func decodeFound(record record, nowMS int64) *found {
	f := &found{record: record, nowMS: nowMS}
	if record.state == "" && record.definition == "" {
		return f
	}
	if f.schedule, f.broken = decodeDefinition(record.definition); f.broken == nil {
		f.state, f.broken = decodeState(record.state)
	}
	if f.broken != nil {
		f.schedule, f.state = nil, nil
	}
	return f
}

// change computes a change from what is stored, and writes it. If another change comes first, it
// computes again. compute returns the next state, or nil for no change, and the definition if that
// changes.
func (s *Service) change(
	ctx context.Context, tenant, name string, compute func(*found) (*state, string, error),
) (Schedule, error) {
	for range tries {
		f, err := s.find(ctx, tenant, name)
		if err != nil {
			return Schedule{}, err
		}
		next, definition, err := compute(f)
		if err != nil { // perhaps after an earlier try whose answer was lost
			return Schedule{}, cmp.Or(s.store.of(f.record.id).runner.Confirm(ctx), err)
		}
		if next == nil { // perhaps after an earlier try whose answer was lost
			return scheduleOf(f.record.id, f.schedule, f.state), s.store.of(f.record.id).runner.Confirm(ctx)
		}
		made, err := s.store.of(f.record.id).write(ctx, write{
			id: f.record.id, seen: f.record.state, state: next.encode(), definition: definition, dueMS: next.dueMS(),
			confirmed: true,
		})
		if err != nil {
			return Schedule{}, err
		}
		if made {
			return scheduleOf(f.record.id, f.schedule, next), nil
		}
	}
	return Schedule{}, busy(name)
}

func notFound(name string) error {
	return &freeslot.Error{Code: freeslot.CodeNotFound, Field: "name", Message: "there is no schedule " + name}
}

func busy(name string) error {
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, Message: "schedule " + name + " is changed by others again and again",
		RetryAfter: time.Second,
	}
}
