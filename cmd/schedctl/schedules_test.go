package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const everySecond = `
name: beat
cron: "@every 1s"
job: {service: echo, payload: {n: 1}}
`

// TestSchedules runs all commands of an operator, until jobs have run.
func TestSchedules(t *testing.T) {
	t.Parallel()
	l := start(t)
	file := filepath.Join(t.TempDir(), "schedules.yaml")
	must(t, os.WriteFile(file, []byte(`
schedules:
  - name: nightly
    cron: 30 4 * * 1-5
    time_zone: Asia/Kathmandu
    on_missed: skip
    paused: true
    job: {service: echo, payload: "n"}
  - {name: monthly, cron: "@monthly", job: {service: echo}}
`), 0o600))
	l.ctl(t, "schedules", "apply", "-f", file, "--dry-run").expect(t, exitOK, "nightly would be at version 1, and nothing was changed", " 04:30:00 +0545\n")
	l.ctl(t, "schedules", "get", "nightly").expect(t, exitFailure, "not_found")
	l.ctl(t, "schedules", "apply", "-f", file).expect(t, exitOK, "nightly is at version 1, next run: paused", "monthly is at version 1, next run: 2")
	l.ctl(t, "schedules", "list").expect(t, exitOK, "monthly", "@monthly", "Asia/Kathmandu", "paused")
	l.ctl(t, "schedules", "get", "nightly").expect(t, exitOK, "30 4 * * 1-5", "skip", `"payload":"n"`, "1m0s")
	next := l.ctl(t, "schedules", "next", "nightly", "-n", "3").expect(t, exitOK, "nightly is paused; it would run", " 04:30:00 +0545\n")
	if n := strings.Count(next.out, "\n"); n != 3 {
		t.Error(next.out)
	}
	l.ctl(t, "schedules", "resume", "nightly").expect(t, exitOK, "nightly is resumed, next run: 2")
	l.ctl(t, "schedules", "pause", "nightly").expect(t, exitOK, "nightly is paused\n")

	// The output of get can be applied, once.
	shown := l.ctl(t, "schedules", "get", "nightly", "-o", "json").expect(t, exitOK).out
	apply := func(text string) result {
		return command(t, text, "--server", l.server.Addr(), "schedules", "apply", "-f", "-")
	}
	apply(strings.Replace(shown, `"n"`, `"m"`, 1)).expect(t, exitOK, "nightly is at version 4, next run: paused")
	apply(strings.Replace(shown, `"n"`, `"o"`, 1)).expect(t, exitFailure, "conflict", "the schedule is at 4")

	apply(everySecond).expect(t, exitOK, "beat is at version 1")
	id := strings.TrimSpace(l.ctl(t, "schedules", "run", "beat").expect(t, exitOK).out)
	l.ctl(t, "watch", id).expect(t, exitOK, `{"n":1}`)
	job := l.awaitRun(t, "beat")
	l.ctl(t, "watch", job).expect(t, exitOK, `{"n":1}`)
	l.ctl(t, "schedules", "delete", "beat", "--version", "9").expect(t, exitFailure, "conflict")
	l.ctl(t, "schedules", "delete", "beat").expect(t, exitOK, "beat is deleted\n")
	l.ctl(t, "schedules", "get", "beat").expect(t, exitFailure, "not_found", "there is no schedule beat")

	apply("name: x\ncron: '@daily'\n").expect(t, exitFailure, "schedule x: invalid_argument: job is missing")
	apply("{name: x, cron: daily, grace_ms: -1, job: {slots: -1}}").expect(t, exitFailure, "(and 3 more)", "  cron is", "  grace_ms is -1", "  job.slots is -1", "  job.service is")
	apply("cron: '@daily'\n").expect(t, exitUsage, "name is 0 characters long")
	apply("").expect(t, exitUsage, "standard input is empty")
	apply("schedules: 1").expect(t, exitUsage, "no list")
	apply("schedules: [1]").expect(t, exitUsage, "schedules[0] is not a mapping")
	l.ctl(t, "schedules", "next", "nightly", "-n", "0").expect(t, exitUsage, "1 to 100")
	l.ctl(t, "schedules", "list", "--limit", "0").expect(t, exitUsage, "at least 1")
}

// awaitRun waits until a schedule has made a job, and returns its id.
func (l *live) awaitRun(t *testing.T, name string) string {
	t.Helper()
	var job string
	waittest.Until(t, "a run of schedule "+name, func() bool {
		for line := range strings.Lines(l.ctl(t, "schedules", "get", name).expect(t, exitOK).out) {
			if id, ok := strings.CutPrefix(line, "last job"); ok && strings.TrimSpace(id) != "-" {
				job = strings.TrimSpace(id)
			}
		}
		return job != ""
	})
	return job
}

// TestSchedulesOfTenants: a client manages its own schedules, an operator those of all tenants.
func TestSchedulesOfTenants(t *testing.T) {
	t.Parallel()
	l := start(t, config.Token{Token: "acme", Tenant: "acme", Role: identity.Client}, config.Token{Token: "other", Tenant: "other", Role: identity.Client}, config.Token{Token: "root", Tenant: "ops", Role: identity.Operator})
	as := func(token string, args ...string) result {
		t.Helper()
		return command(t, `{"name":"a","cron":"@monthly","job":{"service":"echo"}}`, append([]string{"--server", l.server.Addr(), "--token", token, "schedules"}, args...)...)
	}
	as("acme", "apply", "-f", "-").expect(t, exitOK)
	as("other", "get", "a").expect(t, exitFailure, "not_found")
	as("other", "get", "a", "--tenant", "acme").expect(t, exitFailure, "permission_denied")
	if got := as("other", "list").expect(t, exitOK); strings.Contains(got.out, "acme") {
		t.Error(got.out)
	}
	as("root", "list").expect(t, exitOK, "acme")
	as("root", "apply", "-f", "-", "--tenant", "other").expect(t, exitOK)
	as("other", "get", "a", "-o", "json").expect(t, exitOK, `"tenant": "other"`)
	as("root", "delete", "a", "--tenant", "acme").expect(t, exitOK)
	as("acme", "get", "a").expect(t, exitFailure, "not_found")
}
