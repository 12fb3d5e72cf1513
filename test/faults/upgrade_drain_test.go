package faults

import (
	"context"
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

// drainAny drains nodes and undrains them, by whichever replica, until ctx ends.
func (u *upgrade) drainAny(ctx context.Context, rng *mathrand.Rand) {
	nodes := slices.Sorted(maps.Keys(u.nodes))
	for pause(ctx, drainEvery) {
		u.drain(ctx, nodes[rng.IntN(len(nodes))], drainTakes)
	}
}

func (u *upgrade) undrainAll() {
	for _, node := range slices.Sorted(maps.Keys(u.nodes)) {
		u.undrain(node)
	}
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
