package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

const (
	operatorToken = "operator"
	// tenantRunning is how many jobs of the first tenant may run at a time in each cell. With fewer
	// a run of a minute leaves more than can be done in restLimit.
	tenantRunning = 6
	scheduleName  = "tick"
)

// tenants have a client each; the name is the token, too.
var tenants = []string{"t1", "t2", "t3"}

// varied is what a replica is configured with for jobs of several tenants.
func varied(cells int) map[string]any {
	tokens := []any{map[string]any{"token": operatorToken, "tenant": operatorToken, "role": "operator"}}
	for _, name := range tenants {
		tokens = append(tokens, map[string]any{"token": name, "tenant": name})
	}
	return map[string]any{
		"tokens":     tokens,
		"tenants":    map[string]any{tenants[0]: map[string]any{"max_running": tenantRunning * cells}, tenants[1]: map[string]any{"weight": 3}},
		"move_grace": "1s",
	}
}

// history is what the run was like; Final is still missing.
func (f *fleet) history() *History {
	h := &History{Slots: f.nodes, Classes: f.classes, Events: f.rec.Events(), BeginMS: f.rec.begin.UnixMilli()}
	if f.cfg.varied {
		// A key can have a home in each cell.
		h.Running, h.Serial = map[string]int{tenants[0]: tenantRunning * f.cfg.cells}, serialLimit*f.cfg.cells
	}
	return h
}

// addresses are the addresses of the replicas, in the order of their names.
func (f *fleet) addresses() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(f.replicas)) {
		list = append(list, f.replicas[name])
	}
	return list
}

// anyReplica asks the replicas, again and again, until one has done it, or until the limit.
func (f *fleet) anyReplica(limit time.Duration, method, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	for {
		last := ctx.Err()
		addresses := f.addresses()
		for _, i := range rand.Perm(len(addresses)) {
			status, text, err := call(ctx, method, "http://"+addresses[i]+path, body, out)
			if err == nil && status/100 == 2 {
				return nil
			}
			last = fmt.Errorf("%d %s %w", status, text, err)
		}
		if !pause(ctx, askAgainAfter) {
			return fmt.Errorf("%s %s: %w", method, path, last)
		}
	}
}

// drain has a node drained for a while.
func (f *fleet) drain(ctx context.Context, node string, takes time.Duration) {
	if err := f.anyReplica(lookLimit, http.MethodPost, "/v1/nodes/"+node+"/drain", nil, nil); err == nil {
		f.rec.Add(Event{Kind: Drained, Node: node})
	}
	pause(ctx, takes)
	f.undrain(node)
}

func (f *fleet) undrain(node string) {
	f.rec.Add(Event{Kind: Undraining, Node: node})
	if err := f.anyReplica(restLimit, http.MethodPost, "/v1/nodes/"+node+"/undrain", nil, nil); err != nil {
		f.t.Error(err)
	}
}

// forget deletes the time when a node was last heard.
func (f *fleet) forget(ctx context.Context, node string) {
	limit, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if err := f.do(limit, "DEL", f.layout(node).Load(node)); err != nil {
		f.rec.Add(Event{Kind: Fault, Who: loadPrefix + node, Note: "not forgotten: " + err.Error()})
	}
}

// startSchedule has a job submitted each second.
func (f *fleet) startSchedule() {
	f.t.Helper()
	task := Task{N: Periodic, Slots: 1, TakeMS: 20}
	body, err := json.Marshal(map[string]any{"cron": "@every 1s", "on_missed": "all", "job": task.job()})
	if err == nil {
		err = f.anyReplica(startLimit, http.MethodPut, "/v1/schedules/"+scheduleName, body, nil)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// endSchedule pauses the schedule.
func (f *fleet) endSchedule() {
	if err := f.anyReplica(startLimit, http.MethodPost, "/v1/schedules/"+scheduleName+"/pause", nil, nil); err != nil {
		f.t.Error(err)
	}
}

// runs is how many jobs the schedule made.
func (f *fleet) runs() int {
	var schedule struct {
		Runs int `json:"runs"`
	}
	if err := f.anyReplica(startLimit, http.MethodGet, "/v1/schedules/"+scheduleName, nil, &schedule); err != nil {
		f.t.Error(err)
	}
	return schedule.Runs
}
