package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestDegraded(t *testing.T) {
	t.Parallel()
	const old = `{"node_id":"n1","max_concurrency":1,"installed_services":[],"capabilities":{},"status":"online","degraded":true,"age_ms":4520}`
	const fresh = `{"node_id":"n2","max_concurrency":1,"installed_services":[],"capabilities":{},"status":"online"}`
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]string{"/v1/nodes": `{"degraded":true,"age_ms":4520,"nodes":[` + old + `,` + fresh + `]}`, "/v1/nodes/n1": old, "/v1/nodes/n2": fresh}
		_, _ = w.Write([]byte(answer[r.URL.Path]))
	}))
	defer replica.Close()
	command(t, "", "--server", replica.URL, "nodes").expect(t, exitOK, "n1", "degraded: Redis does not answer; 1 of 2 nodes are as the replica knew them up to 4.5s ago")
	command(t, "", "--server", replica.URL, "nodes", "n1").expect(t, exitOK, "1 of 1 nodes")
	command(t, "", "--server", replica.URL, "nodes", "-o", "json").expect(t, exitOK, `"degraded": true`, `"age_ms": 4520`)
	if got := command(t, "", "--server", replica.URL, "nodes", "n2").expect(t, exitOK); got.err != "" {
		t.Error(got.err)
	}
}
