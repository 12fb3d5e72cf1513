package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestSilentCells: whatever lists or counts jobs says that those of some cells are missing.
func TestSilentCells(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"jobs":[],"groups":[],"queues":[],"tenants":[],"pools":[],"unreachable":[1,3]}`)
	}))
	t.Cleanup(server.Close)
	for _, args := range [][]string{
		{"list"}, {"dead-letters"}, {"queues"}, {"tenants", "ls"}, {"demand"}, {"requeue", "--state", "dead"},
	} {
		command(t, "", append([]string{"--server", server.URL}, args...)...).expect(t, exitOK,
			"schedctl: cells 1 3 do not answer; their jobs are missing")
	}
}
