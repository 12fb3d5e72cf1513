package bulk

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Action is what is done to each target.
type Action string

// The actions. Requeue, Cancel and Drop are for jobs, Drain and Undrain for nodes.
const (
	Requeue Action = "requeue"
	Cancel  Action = "cancel"
	Drop    Action = "drop"
	Drain   Action = "drain"
	Undrain Action = "undrain"
)

// ofNodes reports whether the targets are nodes.
func (a Action) ofNodes() bool { return a == Drain || a == Undrain }

// takes reports whether the action is for jobs in this state.
func (a Action) takes(state freeslot.State) bool {
	switch a {
	case Requeue:
		return state == freeslot.StateDead || state == freeslot.StateFailed || state == freeslot.StateExpired
	case Drop:
		return state.Terminal()
	case Cancel:
		return !state.Terminal()
	default:
		return false
	}
}

// State is how far an operation is.
type State string

// The states.
const (
	// Planned: its targets are fixed, and nothing has begun.
	Planned State = "planned"
	Running State = "running"
	// Stopped: it was stopped before all targets were touched.
	Stopped State = "stopped"
	Ended   State = "ended"
)

// BulkFilter chooses targets by what they have in common. It needs at least one condition, and
// State for jobs.
type BulkFilter struct {
	// State and the rest are documented in their tags.
	State    freeslot.State `json:"state,omitempty" enum:"scheduled,waiting,moving,retry_wait,running,cancelling,succeeded,failed,cancelled,expired,dead" doc:"Jobs in this state. Job actions need it."`
	Tenant   string         `json:"tenant,omitempty" maxLength:"64" doc:"Jobs of this tenant. Clients may only name their own."`
	Class    string         `json:"class,omitempty" maxLength:"16" doc:"Jobs of this class, by its id."`
	Service  string         `json:"service,omitempty" maxLength:"64" doc:"Jobs of this service."`
	Node     string         `json:"node,omitempty" maxLength:"64" doc:"Jobs that run on this node, or ran there last."`
	Code     string         `json:"code,omitempty" maxLength:"128" doc:"Jobs whose error has this code."`
	Schedule string         `json:"schedule,omitempty" maxLength:"64" doc:"Jobs that this schedule made, or that repeat one of them."`
	FromMS   int64          `json:"ended_from_ms,omitempty" minimum:"0" maximum:"99999999999999" doc:"Jobs that ended at this time or later, in milliseconds since 1970 by Redis' clock."`
	ToMS     int64          `json:"ended_to_ms,omitempty" minimum:"0" maximum:"99999999999999" doc:"Jobs that ended before this time."`
	Pool     string         `json:"pool,omitempty" maxLength:"64" doc:"Nodes of this pool. Node actions need a pool or a service."`
	Services []string       `json:"node_services,omitempty" maxItems:"64" doc:"Nodes with these services, optionally in a range of versions: asr@>=1.2 <2."`
}

// jobs returns the conditions for jobs.
func (f *BulkFilter) jobs() cell.JobFilter {
	return cell.JobFilter{
		Tenant: f.Tenant, State: f.State, Class: f.Class, Service: f.Service, Node: f.Node, Schedule: f.Schedule,
		Code: f.Code, FromMS: f.FromMS, ToMS: f.ToMS,
	}
}

// validate returns an error that names a field below "filter".
func (f *BulkFilter) validate(action Action) error {
	byJob := f.jobs() != (cell.JobFilter{})
	byNode := f.Pool != "" || len(f.Services) > 0
	switch {
	case action.ofNodes() && byJob:
		return freeslot.Invalid(
			"filter", "has conditions for jobs, and %s is for nodes: expected pool or node_services", action,
		)
	case action.ofNodes() && !byNode:
		return freeslot.Invalid("filter", "has no condition, expected pool or node_services")
	case !action.ofNodes() && byNode:
		return freeslot.Invalid("filter", "has conditions for nodes, and %s is for jobs: expected state", action)
	case !action.ofNodes() && !action.takes(f.State):
		return freeslot.Invalid("filter.state", "is %q, expected a state of jobs that %s is for", f.State, action)
	}
	for _, one := range []struct{ field, value string }{
		{"tenant", f.Tenant}, {"service", f.Service}, {"node", f.Node}, {"schedule", f.Schedule}, {"pool", f.Pool},
	} {
		if one.value == "" {
			continue
		}
		if err := freeslot.ValidateName("filter."+one.field, one.value); err != nil {
			return err
		}
	}
	for i, service := range f.Services {
		if err := freeslot.ValidateService(fmt.Sprintf("filter.node_services[%d]", i), service); err != nil {
			return err
		}
	}
	if f.Class != "" {
		return freeslot.ValidateClassID("filter.class", f.Class)
	}
	return nil
}

// BulkRequest is what a plan is asked for.
type BulkRequest struct {
	// Action and the rest are documented in their tags.
	Action Action      `json:"action" enum:"requeue,cancel,drop,drain,undrain" doc:"What to do: requeue jobs that are dead, failed or expired, cancel jobs that have not ended, drop jobs that have, drain or undrain nodes."`
	Filter *BulkFilter `json:"filter,omitempty" doc:"What the targets have in common, instead of ids."`
	IDs    []string    `json:"ids,omitempty" maxItems:"10000" doc:"The ids of the jobs or nodes, instead of a filter."`
}

func (r *BulkRequest) validate() error {
	switch {
	case (r.Filter == nil) == (len(r.IDs) == 0):
		return freeslot.Invalid("filter", "and ids choose targets in two ways, expected one of them")
	case r.Filter != nil:
		return r.Filter.validate(r.Action)
	}
	for i, id := range r.IDs {
		err := cell.ValidateJobID(fmt.Sprintf("ids[%d]", i), id)
		if r.Action.ofNodes() {
			err = freeslot.ValidateName(fmt.Sprintf("ids[%d]", i), id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// BulkOperation is a plan or an operation. Times are by Redis' clock, in milliseconds since 1970.
type BulkOperation struct {
	ID     string      `json:"id" doc:"Names the plan, and the operation that is made of it."`
	Action Action      `json:"action" enum:"requeue,cancel,drop,drain,undrain"`
	State  State       `json:"state" enum:"planned,running,stopped,ended" doc:"planned: the targets are fixed, and nothing has begun. stopped: some targets were not touched."`
	Tenant string      `json:"tenant,omitempty" doc:"The tenant whose jobs it may touch; absent for one of an operator, which may touch all."`
	Filter *BulkFilter `json:"filter,omitempty" doc:"What the targets have in common; absent where they were given by their ids."`

	Count    int            `json:"count" doc:"How many targets it has."`
	Again    int            `json:"submitted_again,omitempty" doc:"Of a plan to requeue by a filter: how many further jobs fit and were submitted again before, so that they are left out."`
	Complete bool           `json:"complete" doc:"Whether these are all targets. Otherwise there are more than one operation takes, or a cell did not answer."`
	Services map[string]int `json:"by_service,omitempty" doc:"Of jobs: how many of each service, the 20 most frequent and other."`
	Tenants  map[string]int `json:"by_tenant,omitempty" doc:"Of jobs: how many of each tenant, the 20 most frequent and other."`
	Codes    map[string]int `json:"by_error,omitempty" doc:"Of jobs: how many with each error code, the 20 most frequent and other."`
	Samples  []string       `json:"samples" doc:"The first ten targets."`

	PlannedMS int64 `json:"planned_at_ms"`
	// ExpiresMS is documented in its tag.
	ExpiresMS int64  `json:"expires_at_ms,omitempty" doc:"Of a plan: until when it can be started."`
	StartedMS int64  `json:"started_at_ms,omitempty"`
	EndedMS   int64  `json:"ended_at_ms,omitempty"`
	By        string `json:"by,omitempty" doc:"Who started it."`
	Reason    string `json:"reason,omitempty" doc:"Why, in the words of who started it."`

	Done     int            `json:"done" doc:"How many targets were touched or refused so far."`
	Outcomes map[string]int `json:"outcomes" doc:"How many of them came out how: done, or the code of a refusal."`
	Stopping bool           `json:"stopping,omitempty" doc:"Whether it ends soon because somebody stops it."`

	// Owner is the replica that works on it, in one of its lives, and LeaseMS until when no other
	// may. Steps counts the changes, so that no state comes twice.
	Owner   string `json:"owner,omitempty" doc:"Which replica works on it."`
	LeaseMS int64  `json:"lease_ms,omitempty" doc:"Until when no other replica takes it over."`
	Steps   uint64 `json:"steps" doc:"How often it has changed."`
}

// outcomeDone is the outcome of a target that was touched.
const outcomeDone = "done"

// may reports whether a caller who may touch the jobs of tenant ("" is all) may see and change it.
func (o *BulkOperation) may(tenant string) bool { return tenant == "" || o.Tenant == tenant }

// over reports whether nothing will be done any more.
func (o *BulkOperation) over() bool { return o.State == Stopped || o.State == Ended }

func (o *BulkOperation) encode() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("bulk: encode an operation: %v", err)) // nothing in it can fail
	}
	return string(text)
}

// decode reads what encode or an operator wrote.
func decode(text string) (*BulkOperation, error) {
	o := new(BulkOperation)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	if o.Done < 0 || o.Count < 0 || o.ID == "" {
		return nil, fmt.Errorf("operation %q has %d of %d targets done", o.ID, o.Done, o.Count)
	}
	if o.Outcomes == nil {
		o.Outcomes = map[string]int{}
	}
	return o, nil
}

// mostGroups is how many groups a plan tells apart.
const mostGroups = 20

// bound keeps the largest groups, and adds up the others as "other".
func bound(groups map[string]int) map[string]int {
	if len(groups) <= mostGroups {
		return groups
	}
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if groups[a] != groups[b] {
			return groups[b] - groups[a]
		}
		if a < b {
			return -1
		}
		return 1
	})
	kept := make(map[string]int, mostGroups+1)
	for i, name := range names {
		if i >= mostGroups {
			name = "other"
		}
		kept[name] += groups[names[i]]
	}
	return kept
}
