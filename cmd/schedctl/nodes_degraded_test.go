package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
)

// TestSilent: a node with a dead agent does not look like a working one.
func TestSilent(t *testing.T) {
	t.Parallel()
	const dead = `{"node_id":"n1","max_concurrency":4,"installed_services":[],"capabilities":{},"status":"online","silent":true}`
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]string{"/v1/nodes": `{"nodes":[` + dead + `]}`, "/v1/nodes/n1": dead}
		_, _ = w.Write([]byte(answer[r.URL.Path]))
	}))
	defer replica.Close()
	for _, args := range [][]string{{"nodes"}, {"nodes", "n1"}} {
		got := command(t, "", append([]string{"--server", replica.URL}, args...)...).expect(t, exitOK, "silent")
		if strings.Contains(got.out, "online") {
			t.Error(got.out)
		}
	}
	command(t, "", "--server", replica.URL, "nodes", "-o", "json").expect(t, exitOK, `"status": "online"`, `"silent": true`)
	imported := api.NodeStatus{Status: freeslot.StatusDraining, Silent: true, Epoch: cell.ImportEpoch}
	if got := shownStatus(&imported); got != "imported" {
		t.Error(got)
	}
}

// TestServicesOfANode: a single node is shown with all details of its services.
func TestServicesOfANode(t *testing.T) {
	t.Parallel()
	const n = `{"node_id":"n1","max_concurrency":4,"installed_services":[{"name":"asr","version":"2.1","endpoint":"http://10.0.0.7:8000"},{"name":"tts"}],"capabilities":{},"status":"online"}`
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]string{"/v1/nodes": `{"nodes":[` + n + `]}`, "/v1/nodes/n1": n}
		_, _ = w.Write([]byte(answer[r.URL.Path]))
	}))
	defer replica.Close()
	command(t, "", "--server", replica.URL, "nodes", "n1").expect(t, exitOK, "asr 2.1 at http://10.0.0.7:8000, tts")
	command(t, "", "--server", replica.URL, "nodes").expect(t, exitOK, "asr,tts")
	command(t, "", "--server", replica.URL, "nodes", "n1", "-o", "json").expect(t, exitOK, `"endpoint": "http://10.0.0.7:8000"`)
}

func TestDegraded(t *testing.T) {
	t.Parallel()
	const old = `{"node_id":"n1","max_concurrency":1,"installed_services":[],"capabilities":{},"status":"online","degraded":true,"age_ms":4520}`
	const fresh = `{"node_id":"n2","max_concurrency":1,"installed_services":[],"capabilities":{},"status":"online"}`
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]string{
			"/v1/nodes":    `{"degraded":true,"age_ms":4520,"nodes":[` + old + `,` + fresh + `]}`,
			"/v1/nodes/n1": old, "/v1/nodes/n2": fresh,
			"/v1/explain": `{"total":2,"fits":2,"qualify":2,"outcome":"unavailable","degraded":true,"age_ms":4520}`,
		}
		_, _ = w.Write([]byte(answer[r.URL.Path]))
	}))
	defer replica.Close()
	command(t, "", "--server", replica.URL, "nodes").expect(t, exitOK, "n1", "degraded: Redis does not answer; what is shown of 1 of 2 nodes is up to 4.5s old")
	command(t, "", "--server", replica.URL, "nodes", "n1").expect(t, exitOK, "what is shown of 1 of 1 node is up to")
	command(t, "", "--server", replica.URL, "nodes", "-o", "json").expect(t, exitOK, `"degraded": true`, `"age_ms": 4520`)
	command(t, "", "--server", replica.URL, "explain", "tts").expect(t, exitOK, "degraded: Redis does not answer; nodes are as the replica knew them up to 4.5s ago",
		"2 of 2 nodes fit, and what they do now is not known.", "A submit now would be answered unavailable: Redis does not answer.")
	command(t, "", "--server", replica.URL, "explain", "tts", "-o", "json").expect(t, exitOK, `"degraded": true`, `"outcome": "unavailable"`)
	if got := command(t, "", "--server", replica.URL, "nodes", "n2").expect(t, exitOK); got.err != "" {
		t.Error(got.err)
	}
}
