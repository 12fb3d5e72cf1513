package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/bulk"
	"github.com/freeslot/freeslot/internal/plural"
)

const bulkPath = "/v1/bulk"

type bulkCmd struct {
	Plan  bulkPlanCmd  `cmd:"" help:"Find the jobs or nodes of an operation, and fix them. Nothing is changed yet."`
	Start bulkStartCmd `cmd:"" help:"Start a plan."`
	Ls    bulkLsCmd    `cmd:"" help:"List plans and operations."`
	Show  bulkShowCmd  `cmd:"" help:"Show how far an operation is, and what came of it."`
	Stop  bulkStopCmd  `cmd:"" help:"Stop an operation before its next targets."`
}

type bulkPlanCmd struct {
	Action string   `arg:"" enum:"requeue,cancel,drop,drain,undrain" help:"requeue, cancel or drop for jobs, drain or undrain for nodes."`
	IDs    []string `arg:"" optional:"" name:"id" help:"Ids of the jobs or nodes."`
	State  string   `placeholder:"STATE" help:"Instead of ids: jobs in this state. The filters of jobs go with it."`
	jobFilter
	Pool        string   `placeholder:"POOL" help:"Instead of ids: nodes of this pool."`
	NodeService []string `sep:"none" placeholder:"SERVICE" help:"Instead of ids: nodes with this service, optionally in a range of versions; may be repeated."`
}

// Help is shown below the flags.
func (bulkPlanCmd) Help() string {
	return `Prints how many targets there are and what they have in common, and the command that starts the plan. A plan is kept for
15 minutes. Jobs and nodes that come later are not touched. Examples:
  schedctl bulk plan requeue --state dead --service asr --code handler_error
  schedctl bulk plan drain --pool gpu`
}

// Run plans.
func (c *bulkPlanCmd) Run(a *app) error {
	request := bulk.BulkRequest{Action: bulk.Action(c.Action), IDs: c.IDs}
	by := bulk.BulkFilter{
		State: freeslot.State(c.State), Tenant: c.Tenant, Class: c.Class, Service: c.Service, Node: c.Node, Code: c.Code,
		Schedule: c.Schedule, Pool: c.Pool, Services: c.NodeService,
	}
	if c.Since > 0 {
		by.FromMS = time.Now().Add(-c.Since).UnixMilli()
	}
	if c.Before > 0 {
		by.ToMS = time.Now().Add(-c.Before).UnixMilli()
	}
	if !reflect.ValueOf(by).IsZero() {
		request.Filter = &by
	}
	var plan bulk.BulkOperation
	if err := a.call(http.MethodPost, "/v1/bulk-plans", nil, request, &plan); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(plan)
	}
	if err := a.printPlan(&plan); err != nil {
		return err
	}
	return a.println("start it: schedctl bulk start %s --count %d", plan.ID, plan.Count)
}

func (a *app) printPlan(o *bulk.BulkOperation) error {
	what := "all of them"
	if !o.Complete {
		what = "and there are more"
	}
	if err := a.println("%s %s, %s", o.Action, plural.Of(o.Count, "target", "targets"), what); err != nil {
		return err
	}
	if o.Again > 0 {
		if err := a.println(
			"left out: %s again before", plural.Of(o.Again, "job that was submitted", "jobs that were submitted"),
		); err != nil {
			return err
		}
	}
	for _, groups := range []struct {
		name string
		of   map[string]int
	}{{"by service", o.Services}, {"by tenant", o.Tenants}, {"by error", o.Codes}, {"outcomes", o.Outcomes}} {
		if len(groups.of) > 0 {
			if err := a.println("%s: %s", groups.name, counts(groups.of)); err != nil {
				return err
			}
		}
	}
	if len(o.Samples) == 0 {
		return nil
	}
	return a.println("such as: %s", clean(strings.Join(o.Samples, " ")))
}

// counts writes the numbers of groups, the largest first.
func counts(groups map[string]int) string {
	names := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		if groups[a] != groups[b] {
			return groups[b] - groups[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", clean(name), groups[name])
	}
	return strings.Join(names, ", ")
}

type oneBulk struct {
	Operation string `arg:"" help:"Id of the plan or the operation."`
}

type bulkStartCmd struct {
	oneBulk
	Count int  `required:"" placeholder:"N" help:"How many targets the plan has. Another number is refused."`
	Wait  bool `help:"Wait until it is over; the exit code is 1 if a target was refused."`
}

// Run starts a plan.
func (c *bulkStartCmd) Run(a *app) error {
	var o bulk.BulkOperation
	start := bulk.BulkStart{Plan: c.Operation, Count: c.Count}
	if err := a.call(http.MethodPost, bulkPath, nil, start, &o); err != nil {
		return err
	}
	for c.Wait && (o.State == bulk.Running || o.State == bulk.Planned) {
		if err := a.pause(); err != nil {
			return err
		}
		o = bulk.BulkOperation{}
		if err := a.call(http.MethodGet, bulkPath+"/"+escaped(c.Operation), nil, nil, &o); err != nil {
			return err
		}
	}
	if err := a.printOperation(&o); err != nil || !c.Wait {
		return err
	}
	switch refused := o.Done - o.Outcomes["done"]; {
	case o.State != bulk.Ended:
		return errors.New("it was stopped before all targets were touched")
	case refused > 0:
		return fmt.Errorf("%d of %s refused", refused, plural.Of(o.Count, "target was", "targets were"))
	}
	return nil
}

func (a *app) printOperation(o *bulk.BulkOperation) error {
	if a.json {
		return a.printJSON(o)
	}
	if err := table(a.out, bulkRows(*o)); err != nil {
		return err
	}
	return a.printPlan(o)
}

type bulkLsCmd struct{}

// Run lists plans and operations.
func (c *bulkLsCmd) Run(a *app) error {
	var out bulk.BulkList
	if err := a.call(http.MethodGet, bulkPath, nil, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out.Operations)
	}
	return table(a.out, bulkRows(out.Operations...))
}

func bulkRows(operations ...bulk.BulkOperation) [][]string {
	rows := [][]string{{"OPERATION", "ACTION", "STATE", "DONE", "OF", "BY", "REASON", "PLANNED", "STARTED", "ENDED", "AT"}}
	for i := range operations {
		o := &operations[i]
		replica, _, _ := strings.Cut(o.Owner, "/")
		rows = append(rows, []string{
			o.ID, string(o.Action), string(o.State), fmt.Sprint(o.Done), fmt.Sprint(o.Count), dash(o.By), dash(o.Reason),
			clock(o.PlannedMS), clock(o.StartedMS), clock(o.EndedMS), dash(replica),
		})
	}
	return rows
}

type bulkShowCmd struct{ oneBulk }

// Run shows an operation.
func (c *bulkShowCmd) Run(a *app) error {
	var o bulk.BulkOperation
	if err := a.call(http.MethodGet, bulkPath+"/"+escaped(c.Operation), nil, nil, &o); err != nil {
		return err
	}
	return a.printOperation(&o)
}

type bulkStopCmd struct{ oneBulk }

// Run stops an operation.
func (c *bulkStopCmd) Run(a *app) error {
	var o bulk.BulkOperation
	if err := a.call(http.MethodPost, bulkPath+"/"+escaped(c.Operation)+"/stop", nil, nil, &o); err != nil {
		return err
	}
	return a.printOperation(&o)
}
