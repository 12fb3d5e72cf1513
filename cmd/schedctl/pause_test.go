package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/class"
)

// TestPause: jobs of a paused pool, service or class wait beside a free node. An operator sees why,
// and they run after resume.
func TestPause(t *testing.T) {
	t.Parallel()
	l := start(t)
	class := class.ID("echo", new(freeslot.Requirement))
	for i, what := range []string{"service echo", "class " + class} {
		kind, name, _ := strings.Cut(what, " ")
		l.ctl(t, "pause", kind, name, "--note", "wrong model", "--author", "alice").expect(t, exitOK, what+fmt.Sprintf(" is paused as of version %d", 1+2*i))
		l.ctl(t, "pause", kind, name).expect(t, exitOK, "as it was before")
		id := strings.TrimSpace(l.ctl(t, "submit", "echo", `"x"`).expect(t, exitOK).out)
		l.ctl(t, "get", id).expect(t, exitOK, "waiting (position 1, held by pause)", class)
		l.ctl(t, "list", "--class", class, "--state", "waiting").expect(t, exitOK, id)
		l.ctl(t, "queues").expect(t, exitOK, class, what, "paused: "+what)
		l.ctl(t, "explain", "echo").expect(t, exitOK, "A submit now would wait: "+what+" is paused. Of its class, "+class+", 1 job waits before it.", "paused: "+what+" is paused")
		var queues api.QueueList
		must(t, json.Unmarshal([]byte(l.ctl(t, "queues", "-o", "json").expect(t, exitOK).out), &queues))
		if len(queues.Queues) != 1 || !queues.Queues[0].Paused || queues.Queues[0].Waiting != 1 || queues.Queues[0].Fits != 1 || queues.Queues[0].First != id {
			t.Errorf("%+v; want len(queues.Queues) == 1, queues.Queues[0].Paused, queues.Queues[0].Waiting == 1, queues.Queues[0].Fits == 1, queues.Queues[0].First == %v", queues, id)
		}
		done := make(chan result, 1)
		go func() { done <- l.ctl(t, "watch", id) }()
		l.ctl(t, "resume", kind, name).expect(t, exitOK, what+" is not paused")
		soon(t, done, "the job to end").expect(t, exitOK, `"x"`)
	}
	l.ctl(t, "config", "history").expect(t, exitOK, "default/alice  pause service echo ", "wrong model", "resume service echo ")
	l.ctl(t, "resume", "service", "echo").expect(t, exitOK, "service echo was not paused, so nothing is resumed; the configuration is at version 4")
	l.ctl(t, "pause", "service", "ehco").expect(t, exitOK, "no node is known that has service ehco")
	l.ctl(t, "pause", "pool", "ue").expect(t, exitOK, "no node is known that is in pool ue")
	if got := l.ctl(t, "resume", "pool", "ue").expect(t, exitOK); strings.Contains(got.err, "no node") {
		t.Error(got.err)
	}
	l.ctl(t, "pause", "service", "e cho").expect(t, exitFailure, "has ' ' at position 1")
	l.ctl(t, "schedules", "get", "a/b").expect(t, exitFailure, "has '/' at position 1")
	l.ctl(t, "pause", "class", "echo").expect(t, exitFailure, "expected the id of a class")
	l.ctl(t, "pause", "node", "n1").expect(t, exitUsage)
}

// TestPauseInConfig: pauses are shown and compared with the rest of the configuration, and stay
// when a change does not mention them.
func TestPauseInConfig(t *testing.T) {
	t.Parallel()
	l := start(t)
	file := func(text string) string { return writeFile(t, text) }
	l.ctl(t, "config", "apply", file("enabled: true\npools: [{id: eu, members: [node-1]}]\n")).expect(t, exitOK)
	l.ctl(t, "pause", "pool", "eu").expect(t, exitOK, "as of version 2")
	l.ctl(t, "config", "show").expect(t, exitOK, "version: 2", "paused:\n  pools: [eu]")
	id := strings.TrimSpace(l.ctl(t, "submit", "echo", "--pool", "eu").expect(t, exitOK).out)
	l.ctl(t, "get", id).expect(t, exitOK, "waiting")
	if got := l.ctl(t, "config", "apply", file("enabled: true\npools: [{id: eu, members: [node-1]}, {id: us}]\n")).expect(t, exitOK); strings.Contains(got.out, "paused") {
		t.Error(got.out)
	}
	l.ctl(t, "config", "diff", file("enabled: true\npools: [{id: eu, members: [node-1]}]\npaused: {}\n")).expect(t, exitOK, "paused")
	l.ctl(t, "get", id).expect(t, exitOK, "waiting")
	l.ctl(t, "config", "rollback", "1").expect(t, exitOK, "paused")
	l.ctl(t, "watch", id).expect(t, exitOK)
}

// TestDropAndRequeueMany: ended jobs are chosen by what they have in common.
func TestDropAndRequeueMany(t *testing.T) {
	t.Parallel()
	l := start(t)
	var ids []string
	for range 3 {
		var status freeslot.JobStatus
		got := l.ctl(t, "submit", "fail", "--wait", "-o", "json").expect(t, exitFailure)
		must(t, json.Unmarshal([]byte(got.out), &status))
		ids = append(ids, status.ID)
	}
	class := class.ID("fail", new(freeslot.Requirement))
	for _, args := range [][]string{{}, {ids[0], "--state", "failed"}, {"--class", class}, {"--state", "failed", "--limit", "0"}, {"--state", "running"}} {
		l.ctl(t, append([]string{"drop"}, args...)...).expect(t, exitUsage)
	}
	l.ctl(t, "drop", "--state", "running").expect(t, exitUsage, `--state must be one of "succeeded",`)
	l.ctl(t, "requeue", "--state", "succeeded").expect(t, exitUsage)
	l.ctl(t, "drop", "--state", "failed", "--older-than", "1h").expect(t, exitOK)
	l.ctl(t, "drop", "--state", "failed", "--class", "0123456789abcdef").expect(t, exitOK)
	l.ctl(t, "drop", "--state", "dead").expect(t, exitOK)
	l.ctl(t, "drop", ids[0]).expect(t, exitOK, ids[0])
	l.ctl(t, "drop", ids[0], ids[1]).expect(t, exitFailure, ids[1], "not_found", "1 of 2 jobs could not be dropped")
	got := l.ctl(t, "requeue", "--state", "failed", "--class", class, "--limit", "1", "--drop").expect(t, exitOK, ids[2])
	old, id, _ := strings.Cut(strings.TrimSpace(got.out), " ")
	if old != ids[2] || id == "" {
		t.Fatal(got.out)
	}
	l.ctl(t, "watch", id).expect(t, exitFailure)
	l.ctl(t, "get", ids[2]).expect(t, exitFailure, "not_found")
	var all []bulkResult
	must(t, json.Unmarshal([]byte(l.ctl(t, "drop", "--state", "failed", "-o", "json").expect(t, exitOK).out), &all))
	if len(all) != 1 || all[0].ID != id {
		t.Errorf("%+v; want len(all) == 1, all[0].ID == %v", all, id)
	}
	blocked := strings.TrimSpace(l.ctl(t, "submit", "block").expect(t, exitOK).out)
	soon(t, l.started, "the job to run")
	l.ctl(t, "drop", blocked).expect(t, exitFailure, "expected one that has ended")
	close(l.release)
}
