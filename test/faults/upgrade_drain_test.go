package faults

import (
	"context"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"
)

const (
	drainEvery = 400 * time.Millisecond
	drainTakes = 300 * time.Millisecond
)

// drain is a time, by Redis' clock in milliseconds, in which no attempt may have been given to a
// node.
type drain struct {
	node     string
	from, to int64
}

// drainAny drains nodes and undrains them, by whichever replica, until ctx ends.
func (u *upgrade) drainAny(ctx context.Context, rng *mathrand.Rand) {
	nodes, replicas := slices.Sorted(maps.Keys(u.nodes)), u.addresses()
	for pause(ctx, drainEvery) {
		node := nodes[rng.IntN(len(nodes))]
		status, _, err := call(ctx, http.MethodPost, "http://"+replicas[rng.IntN(len(replicas))]+"/v1/nodes/"+node+"/drain", nil, nil)
		if err != nil || status != http.StatusOK {
			u.undrain(node) // it may have happened all the same
			continue
		}
		d := drain{node: node, from: u.redisNow()}
		pause(ctx, drainTakes)
		d.to = u.redisNow()
		u.undrain(node)
		u.drained = append(u.drained, d)
	}
}

// undrain asks all replicas in turn until one has heard it.
func (u *upgrade) undrain(node string) {
	for begin := time.Now(); time.Since(begin) < restLimit; pause(u.t.Context(), askAgainAfter) {
		for _, addr := range u.addresses() {
			status, _, err := call(u.t.Context(), http.MethodPost, "http://"+addr+"/v1/nodes/"+node+"/undrain", nil, nil)
			if err == nil && (status == http.StatusOK || status == http.StatusNotFound) {
				return
			}
		}
	}
	u.t.Errorf("%s could not be undrained", node)
}

func (u *upgrade) undrainAll() {
	for _, node := range slices.Sorted(maps.Keys(u.nodes)) {
		u.undrain(node)
	}
}

// redisNow is Redis' clock in milliseconds.
func (u *upgrade) redisNow() int64 {
	client, err := u.client()
	if err != nil {
		u.t.Errorf("connect to Redis: %v", err)
		return 0
	}
	defer client.Close()
	now, err := client.Do(u.t.Context(), client.B().Time().Build()).AsIntSlice()
	if err != nil {
		u.t.Errorf("ask Redis for the time: %v", err)
		return 0
	}
	return now[0]*1000 + now[1]/1000
}

// checkDrains looks for jobs whose last attempt was given to a node that was drained then.
func (u *upgrade) checkDrains() (found []Violation) {
	client, err := u.client()
	if err != nil {
		u.t.Errorf("connect to Redis: %v", err)
		return nil
	}
	defer client.Close()
	r := reader{client, u.t.Context()}
	keys, err := r.keys()
	if err != nil {
		u.t.Errorf("list the keys: %v", err)
	}
	for _, key := range keys {
		kind, id := split(key)
		if kind != "jobs" {
			continue
		}
		run, err := client.Do(r.ctx, client.B().Hget().Key(key).Field("run").Build()).ToString()
		if err != nil {
			continue // it never ran
		}
		var attempt, at int64
		var node, epoch string
		if _, err := fmt.Sscan(run, &attempt, &node, &epoch, &at); err != nil {
			u.t.Errorf("field run of %s is %q: %v", key, run, err)
		}
		for _, d := range u.drained {
			if d.node == node && at > d.from && at < d.to {
				found = append(found, Violation{Rule: "drain", Text: fmt.Sprintf("attempt %d of job %s was given to %s at %d, which was drained from %d to %d", attempt, id, node, at, d.from, d.to)})
			}
		}
	}
	return found
}

// listed is a job in a listing.
type listed struct {
	ID       string `json:"job_id"`
	State    string `json:"state"`
	Node     string `json:"node"`
	Attempt  int    `json:"attempt"`
	Failures int    `json:"failures"`
}

// sameListing has a replica of each release list all jobs, which must be those that Redis has.
func (u *upgrade) sameListing(ctx context.Context, final Final) {
	want := map[string]string{}
	for _, r := range final.Records {
		want[r.Job] = string(r.State)
	}
	lists := map[string]map[string]listed{}
	for _, name := range []string{"r1", "r3"} {
		lists[name] = u.list(ctx, name)
		got := map[string]string{}
		for id, j := range lists[name] {
			got[id] = j.State
		}
		if !maps.Equal(got, want) {
			u.t.Errorf("%s lists %d jobs, or other states of them, expected the %d that Redis has", name, len(got), len(want))
		}
	}
	if !maps.Equal(lists["r1"], lists["r3"]) {
		u.t.Error("the two releases list the jobs differently")
	}
}

func (u *upgrade) list(ctx context.Context, replica string) map[string]listed {
	out := map[string]listed{}
	for cursor := ""; ; {
		var page struct {
			Jobs   []listed `json:"jobs"`
			Cursor string   `json:"cursor"`
		}
		address := "http://" + u.replicas[replica] + "/v1/jobs?limit=500&cursor=" + url.QueryEscape(cursor)
		if status, text, err := call(ctx, http.MethodGet, address, nil, &page); err != nil || status != http.StatusOK {
			u.t.Errorf("%s does not list jobs: %d %s, %v", replica, status, text, err)
			return out
		}
		for _, j := range page.Jobs {
			out[j.ID] = j
		}
		if cursor = page.Cursor; cursor == "" {
			return out
		}
	}
}
