package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/replica/config"
)

const (
	// mostNamed is how many tenants of the configuration are listed.
	mostNamed = 1000
	// keptFor is how long a list is used again. However many callers ask, the cells get one question
	// in that time.
	keptFor = 2 * time.Second
	// mostKept bounds the lists of one tenant that are used again.
	mostKept = 256
)

// TenantLimits is what a tenant may do, by the configuration of the replica that answers.
type TenantLimits struct {
	// Weight and the rest are documented in their tags.
	Weight       int     `json:"weight" doc:"Its share of the slots while jobs of several tenants wait for the same nodes."`
	MaxRunning   int     `json:"max_running,omitempty" doc:"How many of its jobs may run at a time; absent without a limit, like the next ones."`
	MaxWaiting   int     `json:"max_waiting,omitempty" doc:"How many of its jobs may wait."`
	SubmitRate   float64 `json:"submit_rate,omitempty" doc:"How many jobs a second it may submit."`
	SubmitBurst  int     `json:"submit_burst,omitempty" doc:"How many it may submit at once after a pause."`
	MaxPriority  int     `json:"max_priority" doc:"The highest priority of its jobs."`
	MaxSchedules int     `json:"max_schedules,omitempty" doc:"How many schedules it may have; absent means 100."`
}

// TenantStatus is one tenant. Its tags document its fields.
type TenantStatus struct {
	Name         string       `json:"name"`
	Configured   bool         `json:"configured" doc:"Whether the configuration names it. If not, tenant_defaults give its limits."`
	Limits       TenantLimits `json:"limits"`
	Running      *int         `json:"running,omitempty" doc:"How many of its jobs run; absent without max_running, because only limits count jobs."`
	Held         *int         `json:"held,omitempty" doc:"How many of its jobs wait because max_running is reached; absent without max_running."`
	OldestHeldMS int64        `json:"oldest_held_ms,omitempty" doc:"When the oldest of the held jobs was submitted, in milliseconds since 1970, by the clock of the replica that took it; of the first hundred in each cell."`
	Waiting      *int         `json:"waiting,omitempty" doc:"How many of its jobs wait for a slot, after a failure or for a time; absent without max_waiting, because only limits count jobs."`
	Rate         float64      `json:"rate" doc:"Jobs that it submitted per second at all replicas together, over the last 10 seconds that each of them reported. 0 also for a tenant that is not among the 200 busiest of any replica."`
	RefusedRate  float64      `json:"refused_rate" doc:"How many of them were refused, per second, for whatever reason."`
	HeldBackBy   []string     `json:"held_back_by" enum:"max_running,max_waiting,submit_rate" doc:"The limits that hold it back. max_running: jobs wait although slots may be free. max_waiting: as many jobs wait as may, and further ones are refused. submit_rate: it submits as fast as it may, and jobs are refused."`
}

// TenantList lists tenants. Its tags document its fields.
type TenantList struct {
	Tenants     []TenantStatus `json:"tenants" doc:"Those that the configuration names, in the order of their names, at most 1000; then the 200 busiest others, the busiest first."`
	LeftOut     int            `json:"left_out,omitempty" doc:"How many tenants of the configuration are not listed."`
	AtMS        int64          `json:"at_ms" doc:"When the list was made, by the replica's clock, in milliseconds since 1970: at most two seconds ago."`
	Unreachable []int          `json:"unreachable,omitempty" doc:"The cells that did not answer, whose jobs are not counted."`
}

// Counts counts the jobs of tenants in all cells; *cell.Set implements it.
type Counts interface {
	Use(ctx context.Context, tenants []string) (used []cell.Use, failed map[int]error)
}

// Statuses returns what the running replicas say of themselves by name, as JSON objects in which
// the field "tenants" has what their meters took.
type Statuses func(ctx context.Context) (map[string]string, error)

// Lister makes lists of tenants. It is safe for concurrent use.
type Lister struct {
	cfg      config.Replica
	counts   Counts
	statuses Statuses
	now      func() time.Time

	// turn has room for the caller that asks; one answer serves all who wait for it. It guards the
	// fields that follow.
	turn   chan struct{}
	last   TenantList
	ones   map[string]TenantList // by the tenant that they list
	told   map[string]Submits
	toldAt time.Time
}

// NewLister makes a lister. It does no I/O.
func NewLister(cfg config.Replica, counts Counts, statuses Statuses) *Lister {
	return &Lister{
		cfg: cfg, counts: counts, statuses: statuses, now: time.Now, turn: make(chan struct{}, 1),
		ones: make(map[string]TenantList),
	}
}

// All returns the list of all tenants, as of at most two seconds ago. Errors: from Redis.
func (l *Lister) All(ctx context.Context) (TenantList, error) {
	if err := l.take(ctx); err != nil {
		return TenantList{}, err
	}
	defer l.give()
	if l.fresh(time.UnixMilli(l.last.AtMS)) {
		return l.last, nil
	}
	rates, err := l.rates(ctx)
	if err != nil {
		return TenantList{}, err
	}
	names := slices.Sorted(maps.Keys(l.cfg.Tenants))
	leftOut := max(len(names)-mostNamed, 0)
	list := l.list(ctx, append(names[:len(names)-leftOut:len(names)-leftOut], l.busiest(rates)...), rates)
	list.LeftOut = leftOut
	if ctx.Err() == nil { // else cells seem unreachable because this caller went away
		l.last = list
	}
	return list, nil
}

// One returns a list of one tenant, as of at most two seconds ago. It counts the jobs of no other.
// Errors: from Redis.
func (l *Lister) One(ctx context.Context, name string) (TenantList, error) {
	if err := l.take(ctx); err != nil {
		return TenantList{}, err
	}
	list, known := l.known(name)
	var rates map[string]Submits
	var err error
	if !known {
		rates, err = l.rates(ctx)
	}
	l.give()
	if known || err != nil {
		return list, err
	}
	// A cell that does not answer holds up no one who asks for another tenant.
	list = l.list(ctx, []string{name}, rates)
	if ctx.Err() != nil || l.take(ctx) != nil {
		return list, nil
	}
	defer l.give()
	if len(l.ones) >= mostKept {
		maps.DeleteFunc(l.ones, func(_ string, o TenantList) bool { return !l.fresh(time.UnixMilli(o.AtMS)) })
	}
	if len(l.ones) < mostKept {
		l.ones[name] = list
	}
	return list, nil
}

// known returns the list of one tenant if it was made within the last two seconds, alone or in the
// list of all. The caller has the turn.
func (l *Lister) known(name string) (TenantList, bool) {
	one, there := l.ones[name]
	if l.last.AtMS > one.AtMS {
		i := slices.IndexFunc(l.last.Tenants, func(s TenantStatus) bool { return s.Name == name })
		if i >= 0 {
			one, there = TenantList{
				Tenants: l.last.Tenants[i : i+1 : i+1], AtMS: l.last.AtMS, Unreachable: l.last.Unreachable,
			}, true
		}
	}
	return one, there && l.fresh(time.UnixMilli(one.AtMS))
}

func (l *Lister) take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lister) give() { <-l.turn }

// fresh reports whether what is from this time is used again. The caller has the turn.
func (l *Lister) fresh(at time.Time) bool {
	age := l.now().Sub(at)
	return age >= 0 && age < keptFor
}

// rates adds up what the replicas tell, as of at most two seconds ago. A replica of an older
// release tells nothing. The caller has the turn, and does not change the map.
func (l *Lister) rates(ctx context.Context) (map[string]Submits, error) {
	if l.fresh(l.toldAt) {
		return l.told, nil
	}
	statuses, err := l.statuses(ctx)
	if err != nil {
		return nil, err
	}
	sum := make(map[string]Submits)
	for _, text := range statuses {
		var told struct {
			Tenants []Submits `json:"tenants"`
		}
		_ = json.Unmarshal([]byte(text), &told) // another release may say anything
		for _, s := range told.Tenants {
			of := sum[s.Tenant]
			sum[s.Tenant] = Submits{Tenant: s.Tenant, Rate: of.Rate + s.Rate, Refused: of.Refused + s.Refused}
		}
	}
	l.told, l.toldAt = sum, l.now()
	return sum, nil
}

// busiest returns the busiest tenants that the configuration does not name.
func (l *Lister) busiest(rates map[string]Submits) (names []string) {
	for name := range rates {
		if _, named := l.cfg.Tenants[name]; !named {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rates[b].Rate, rates[a].Rate), cmp.Compare(a, b))
	})
	return names[:min(len(names), Busiest)]
}

func (l *Lister) list(ctx context.Context, names []string, rates map[string]Submits) TenantList {
	list := TenantList{Tenants: make([]TenantStatus, len(names)), AtMS: l.now().UnixMilli()}
	var limited []string
	at := make(map[string]int) // the index in limited of each of its tenants
	for _, name := range names {
		if t := l.cfg.Tenant(name); t.MaxRunning > 0 || t.MaxWaiting > 0 {
			at[name] = len(limited)
			limited = append(limited, name)
		}
	}
	var used []cell.Use
	if len(limited) > 0 {
		var failed map[int]error
		used, failed = l.counts.Use(ctx, limited)
		list.Unreachable = slices.Sorted(maps.Keys(failed))
	}
	for i, name := range names {
		_, named := l.cfg.Tenants[name]
		s := TenantStatus{
			Name: name, Configured: named, Limits: limitsOf(l.cfg.Tenant(name)), Rate: rates[name].Rate,
			RefusedRate: rates[name].Refused,
		}
		if i, counted := at[name]; counted {
			s.count(&used[i])
		}
		s.HeldBackBy = s.heldBack()
		list.Tenants[i] = s
	}
	return list
}

func limitsOf(t config.Tenant) TenantLimits {
	l := TenantLimits{
		Weight: 1, MaxRunning: t.MaxRunning, MaxWaiting: t.MaxWaiting, MaxPriority: 9, MaxSchedules: t.MaxSchedules,
	}
	if t.Weight != nil {
		l.Weight = *t.Weight
	}
	if t.MaxPriority != nil {
		l.MaxPriority = *t.MaxPriority
	}
	l.SubmitRate, l.SubmitBurst, _ = t.Rate()
	return l
}

// count takes over what the cells count for the limits that the tenant has.
func (s *TenantStatus) count(u *cell.Use) {
	if s.Limits.MaxRunning > 0 {
		s.Running, s.Held, s.OldestHeldMS = &u.Running, &u.Held, u.OldestHeldMS
	}
	if s.Limits.MaxWaiting > 0 {
		s.Waiting = &u.Waiting
	}
}

// nearRate is the part of its submit rate from which on a tenant whose jobs are refused counts as
// held back by it: replicas lose up to a tenth of the permits.
const nearRate = 0.85

func (s *TenantStatus) heldBack() []string {
	by := []string{}
	if s.Held != nil && *s.Held > 0 {
		by = append(by, "max_running")
	}
	if s.Waiting != nil && *s.Waiting >= s.Limits.MaxWaiting {
		by = append(by, "max_waiting")
	}
	if s.RefusedRate > 0 && s.Limits.SubmitRate > 0 && s.Rate >= nearRate*s.Limits.SubmitRate {
		by = append(by, "submit_rate")
	}
	return by
}
