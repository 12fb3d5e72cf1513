//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// ask calls a command of Redis.
func ask(t *testing.T, redis *redistest.Server, command ...string) string {
	t.Helper()
	client := redis.Client(t)
	got, err := client.Do(waittest.Context(t), client.B().Arbitrary(command...).Build()).ToString()
	must(t, err)
	return got
}

// token takes a lock for a command, and returns the command's fencing token.
func (l *live) token(t *testing.T) int64 {
	t.Helper()
	got := command(t, "", "lock", "run", "nightly", "--redis-url", l.url, "--lock-key-prefix", l.prefix, "--",
		"sh", "-c", "echo $FREESLOT_LOCK_TOKEN").expect(t, exitOK)
	n, err := strconv.ParseInt(strings.TrimSpace(got.out), 10, 64)
	must(t, err)
	return n
}

// submit submits a job with an idempotency key, and returns its id.
func (l *live) submit(t *testing.T, service, key string) (id string) {
	t.Helper()
	waittest.Until(t, "a replica that takes a job of "+service, func() bool {
		got := l.ctl(t, "submit", service, "{}", "--idempotency-key", key)
		id = strings.TrimSpace(got.out)
		return got.code == exitOK
	}, func() any { return id })
	return id
}

// awaitState waits for the state of a job.
func (l *live) awaitState(t *testing.T, id string, want freeslot.State) (status freeslot.JobStatus) {
	t.Helper()
	waittest.Until(t, "job "+id+" to be "+string(want), func() bool {
		got := l.ctl(t, "get", id, "-o", "json")
		return got.code == exitOK && json.Unmarshal([]byte(got.out), &status) == nil && status.State == want
	}, func() any { return status.State })
	return status
}

// serves waits until commands work and a job runs.
func (l *live) serves(t *testing.T) {
	t.Helper()
	waittest.Until(t, "a job to run", func() bool { return l.ctl(t, "submit", "echo", "{}", "--wait").code == exitOK })
}

// TestDisasterOldData: Redis is started again with its data as they were some time ago, from a
// snapshot or an append-only file. docs/disaster.md says what this shows.
func TestDisasterOldData(t *testing.T) {
	t.Parallel()
	if os.Getenv("FREESLOT_DISASTER") != "1" {
		t.Skip("it takes some twenty seconds: make disaster-test")
	}
	for name, options := range map[string][]redistest.Option{"snapshot": nil, "append-only": {redistest.AppendOnly("always")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t, options...)
			l := startOn(t, redis.Target, func(*config.Replica) {})
			do := func(args ...string) { t.Helper(); l.ctl(t, args...).expect(t, exitOK) }
			do("lists", "apply", "vip")
			do("lists", "import", "vip", listFile(t, "vip.txt", "a\n"), "--switch")
			do("registry", "config", "set", "limits", writeFile(t, "a: 1\n"))
			done, runs := l.submit(t, "echo", "done"), l.submit(t, "block", "runs")
			l.awaitState(t, done, freeslot.StateSucceeded)
			soon(t, l.started, "the job that blocks")
			kept := filepath.Join(t.TempDir(), "kept")
			if len(options) == 0 {
				ask(t, redis, "SAVE")
			}
			must(t, os.CopyFS(kept, os.DirFS(redis.Process().Dir())))

			// What comes now is lost.
			do("lists", "add", "vip", "b")
			do("registry", "config", "set", "limits", writeFile(t, "a: 2\n"))
			lost := l.submit(t, "echo", "lost")
			l.awaitState(t, lost, freeslot.StateSucceeded)
			l.release <- struct{}{}
			l.awaitState(t, runs, freeslot.StateSucceeded)
			token := l.token(t)

			folder := redis.Process().Dir()
			redis.Kill()
			replaceFolder(t, folder, kept)
			redis.Restart()

			l.awaitState(t, runs, freeslot.StateRunning) // it ended in what is lost
			soon(t, l.started, "the job that blocks, for the second time")
			l.release <- struct{}{}
			if status := l.awaitState(t, runs, freeslot.StateSucceeded); status.Attempt != 1 {
				t.Errorf("the job ended in attempt %d; want the attempt of the snapshot", status.Attempt)
			}
			l.ctl(t, "get", lost).expect(t, exitFailure, "not_found")
			if again := l.submit(t, "echo", "done"); again != done {
				t.Errorf("a key of before the snapshot gave job %s; want %s", again, done)
			}
			if again := l.submit(t, "echo", "lost"); again == lost {
				t.Error("a key of after the snapshot gave the job that was lost; want a new one")
			}
			do("lists", "show", "vip")
			l.ctl(t, "lists", "query", "vip", "a", "b").expect(t, exitOK, "a   yes", "b   no")
			l.ctl(t, "registry", "config", "get", "limits").expect(t, exitOK, "a: 1")
			if next := l.token(t); next <= token {
				t.Errorf("a lock got token %d after the restart; want one above %d", next, token)
			}
			l.serves(t)
		})
	}
}

// replaceFolder gives a folder the content of another one.
func replaceFolder(t *testing.T, folder, with string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, e := range entries {
		must(t, os.RemoveAll(filepath.Join(folder, e.Name())))
	}
	must(t, os.CopyFS(folder, os.DirFS(with)))
}

// TestDisasterFlush: a wrong FLUSHALL takes jobs, and what operators have set up. Nodes come back
// by themselves, and a backup brings back the rest.
func TestDisasterFlush(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	l := startOn(t, redis.Target, func(c *config.Replica) {
		c.Lists.Sources = map[string]config.ListSource{"crm": {Kind: "file", Path: listFile(t, "crm.csv", "a\n")}}
		backupTokens(c)
	})
	l.setUp(t)
	file, again := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "again")
	l.admin(t, "backup", file).expect(t, exitOK)
	job := strings.TrimSpace(l.admin(t, "submit", "echo", "{}").expect(t, exitOK).out)
	token := l.token(t)
	ask(t, redis, "FLUSHALL")
	waittest.Until(t, "the node to be back", func() bool {
		return strings.Contains(l.admin(t, "nodes").out, "node-1")
	})
	l.admin(t, "get", job).expect(t, exitFailure, "not_found")
	waittest.Until(t, "a restore into the empty Redis", func() bool {
		return l.admin(t, "restore", file).code == exitOK
	})
	l.admin(t, "backup", again).expect(t, exitOK)
	sameContents(t, file, again)
	if next := l.token(t); next <= token {
		t.Errorf("a lock got token %d after the flush; want one above %d", next, token)
	}
	waittest.Until(t, "a job to run", func() bool { return l.admin(t, "submit", "echo", "{}", "--wait").code == exitOK })
}
