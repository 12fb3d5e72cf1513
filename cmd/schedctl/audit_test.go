package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// What one operator changes, another one sees, with the reason.
func TestAudit(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "pause", "service", "tts", "--reason", "a bad model").expect(t, exitOK)
	l.ctl(t, "nodes", "drain", "nobody").expect(t, exitFailure, string(freeslot.CodeNotFound))
	waittest.Until(t, "both changes in the audit", func() bool {
		out := l.ctl(t, "audit").expect(t, exitOK, "WHEN").out
		return strings.Contains(out, "pause-service") && strings.Contains(out, "not_found")
	})
	lines := strings.Split(strings.TrimSpace(l.ctl(t, "audit").expect(t, exitOK).out), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "drain-node") || !strings.Contains(lines[2], "a bad model") {
		t.Errorf("the audit is %q, expected the drain first, and then the pause with its reason", lines)
	}
	out := l.ctl(t, "audit", "--call", "pause-service", "--since", "1h", "-o", "json").expect(t, exitOK).out
	var change api.AuditedChange
	if err := json.Unmarshal([]byte(out), &change); err != nil || strings.Count(out, "\n") != 1 {
		t.Fatalf("%q is no line of JSON: %v", out, err)
	}
	if change.Reason != "a bad model" || change.Outcome != "done" || change.Role != "admin" {
		t.Errorf("the change is %+v, expected it done by an admin for a bad model", change)
	}
	l.ctl(t, "audit", "--limit", "0").expect(t, exitUsage, "--limit")
	l.ctl(t, "resume", "service", "tts", "--reason", "two\nlines").expect(t, exitUsage, "--reason")
}

// What schedctl changes in Redis itself has entries, too.
func TestOwnChangesAreAudited(t *testing.T) {
	t.Parallel()
	l := start(t)
	redis := []string{"--redis-url", l.url, "--key-prefix", l.prefix}
	load := slices.Concat([]string{"nodes", "import", "-", "--reason", "a new rack"}, redis)
	command(t, "["+listed("n7", 3)+"]", append(load, "--dry-run")...).expect(t, exitOK)
	command(t, "["+listed("n7", 3)+"]", load...).expect(t, exitOK)
	lock := []string{"acl", "--apply", "--role", "lock", "--lock-key-prefix", l.prefix, "--user", "locks" + l.prefix}
	set := command(t, "", slices.Concat(lock, redis)...).expect(t, exitOK)
	if strings.Contains(set.err, "the audit does not have") {
		t.Errorf("acl --apply says %q; want no warning", set.err)
	}
	var got []string
	for line := range strings.Lines(l.ctl(t, "audit", "--role", "redis", "-o", "json").expect(t, exitOK).out) {
		var e api.AuditedChange
		must(t, json.Unmarshal([]byte(line), &e))
		got = append(got, strings.Join([]string{e.Name, e.Replica, e.Call, e.Target, e.After, e.Outcome, e.Reason}, "|"))
		if user, machine, _ := strings.Cut(e.Address, "@"); user == "" || machine == "" {
			t.Errorf("the address is %q; want user@machine", e.Address)
		}
	}
	expectSame(t, []string{
		"default|schedctl|apply-acl|role lock: locks" + l.prefix + "|set on 1 server|done|",
		"default|schedctl|import-nodes|1 node of -|1 node: 1 copied|done|a new rack",
	}, got)
	other := slices.Concat(lock, []string{"--redis-url", l.url, "--key-prefix", l.prefix + "-other"})
	command(t, "", other...).expect(t, exitOK, "no system with the key prefix")
}

// --follow shows each change once, also when more come between two questions than one page has.
func TestAuditFollow(t *testing.T) {
	t.Parallel()
	l := start(t)
	log := audit.New(audit.Config{}, script.NewRunner(
		script.Config{Layout: script.Layouts(l.prefix, 1, redistest.Shared(t).IsCluster())[0], CallTimeout: time.Minute},
		redistest.Shared(t).Client(t), zap.NewNop(), nil), zap.NewNop(), nil)
	change := func(role identity.Role, target string) {
		c, err := log.Begin(waittest.Context(t), &identity.Principal{Role: role}, "put-schedule", target, "", "")
		must(t, err)
		c.End(t.Context(), audit.OutcomeDone)
	}
	var want []string
	add := func(n int) {
		for range n {
			role := identity.Client
			if len(want)%10 == 0 {
				role = identity.Operator
			}
			want = append(want, fmt.Sprint("/v1/schedules/s", len(want)))
			change(role, want[len(want)-1])
		}
	}
	add(3)
	ctx, stop := context.WithCancel(waittest.Context(t))
	defer stop()
	var out, errs buffer
	done := make(chan int, 1)
	args := []string{"--server", l.server.Addr(), "audit", "--follow", "-o", "json"}
	go func() { done <- run(args, &environment{ctx: ctx, out: &out, err: &errs}) }()
	shown := func() (targets []string) {
		for line := range strings.Lines(out.String()) {
			var e api.AuditedChange
			if json.Unmarshal([]byte(line), &e) == nil {
				targets = append(targets, e.Target)
			}
		}
		return targets
	}
	waittest.Until(t, "the first changes", func() bool { return len(shown()) == 3 })
	add(1800)
	waittest.Until(t, "the last change", func() bool { return slices.Contains(shown(), want[len(want)-1]) })
	stop()
	if code := soon(t, done, "the end of the command"); code != exitOK {
		t.Errorf("the exit code is %d, and %s; want %d", code, errs.String(), exitOK)
	}
	got := shown() // within a millisecond in any order
	slices.Sort(got)
	slices.Sort(want)
	expectSame(t, want, got)
}
