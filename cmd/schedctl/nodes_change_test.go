package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestDrain: a drained node gets no job until undrain.
func TestDrain(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "nodes", "drain", "node-1").expect(t, exitOK, "node-1 is drained\n")
	l.awaitStatus(t, "drained")
	id := strings.TrimSpace(l.ctl(t, "submit", "echo", `"a"`).expect(t, exitOK).out)
	l.ctl(t, "get", id).expect(t, exitOK, "waiting")
	l.ctl(t, "nodes", "drain", "node-1", "-o", "json").expect(t, exitOK, `"node_id": "node-1"`, `"status": "drained"`)
	l.ctl(t, "nodes", "undrain", "node-1").expect(t, exitOK, "node-1 is not drained any more\n")
	l.ctl(t, "watch", id).expect(t, exitOK, `"a"`)

	l.ctl(t, "nodes", "remove", "node-1").expect(t, exitFailure, "conflict", "the agent of node node-1 is alive: stop it")
	for _, action := range []string{"drain", "undrain", "remove"} {
		l.ctl(t, "nodes", action, "node-2").expect(t, exitFailure, "not_found", "there is no node node-2")
		l.ctl(t, "nodes", action, "node 2").expect(t, exitFailure, "invalid_argument")
		l.ctl(t, "nodes", action).expect(t, exitUsage, "node-id")
	}
}

// awaitStatus waits until the replica shows its node with this status.
func (l *live) awaitStatus(t *testing.T, status string) {
	t.Helper()
	waittest.Until(t, "node-1 to be "+status, func() bool {
		return strings.Contains(l.ctl(t, "nodes").out, " "+status+" ")
	})
}

// TestDrainIsForOperators: a client's token cannot change a node.
func TestDrainIsForOperators(t *testing.T) {
	t.Parallel()
	l := start(t, config.Token{Token: "acme-token", Tenant: "acme", Role: identity.Client}, config.Token{Token: "root-token", Tenant: "ops", Role: identity.Operator})
	for _, action := range []string{"drain", "undrain", "remove"} {
		l.ctl(t, "nodes", action, "node-1", "--token", "acme-token").expect(t, exitFailure, "permission_denied")
	}
	l.ctl(t, "nodes", "drain", "node-1", "--token", "root-token").expect(t, exitOK)
}

// TestRemove shows the jobs of a removed node.
func TestRemove(t *testing.T) {
	t.Parallel()
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			t.Error(r.Method, r.URL)
		}
		jobs := map[string]string{
			"/v1/nodes/n1": `,"jobs":["0-1","0-2"]`, "/v1/nodes/n3?epoch=e1": `,"jobs":["0-3"]`,
		}[r.URL.String()]
		_, _ = fmt.Fprintf(w, `{"node_id":"%s","status":"removed"%s}`, strings.TrimPrefix(r.URL.Path, "/v1/nodes/"), jobs)
	}))
	defer replica.Close()
	remove := func(args ...string) result {
		return command(t, "", append([]string{"--server", replica.URL, "nodes", "remove"}, args...)...)
	}
	remove("n1").expect(t, exitOK, "n1 is removed; its jobs go to their next attempts: 0-1 0-2\n")
	if got := remove("n2").expect(t, exitOK); got.out != "n2 is removed\n" {
		t.Error(got.out)
	}
	remove("n3", "--if-epoch", "e1").expect(t, exitOK, "n3 is removed; its jobs go to their next attempts: 0-3\n")
	remove("n1", "-o", "json").expect(t, exitOK, `"status": "removed"`, `"0-2"`)
}
