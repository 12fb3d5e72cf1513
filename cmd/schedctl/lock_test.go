package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/lock/server"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestLocks: what operators see of locks, and do about them.
func TestLocks(t *testing.T) {
	t.Parallel()
	l := start(t)
	m, err := lock.New(lock.Options{RedisURL: l.url, KeyPrefix: l.prefix, Holder: "host-1"})
	must(t, err)
	must(t, m.Start(t.Context()))
	t.Cleanup(func() { must(t, m.Stop(context.Background())) })
	var tokens []string
	for _, key := range []string{"tenant/7 ä", "b"} {
		lk, err := m.Get(lock.Config{Key: key})
		must(t, err)
		held, err := lk.Lock(t.Context())
		must(t, err)
		tokens = append(tokens, fmt.Sprint(held.Token()))
	}
	waittest.Until(t, "both locks in the listing", func() bool { // they come after a second
		out := l.ctl(t, "lock", "ls").out
		return strings.Contains(out, tokens[0]) && strings.Contains(out, tokens[1])
	})
	l.ctl(t, "lock", "ls").expect(t, exitOK, "LOCK", "tenant/7 ä", "host-1", tokens[0], tokens[1], "held")
	var some []server.Lock
	got := l.ctl(t, "lock", "ls", "--limit", "1", "-o", "json").expect(t, exitOK)
	if err := json.Unmarshal([]byte(got.out), &some); err != nil || len(some) != 1 {
		t.Error(got.out, err)
	}
	l.ctl(t, "lock", "ls", "--limit", "0").expect(t, exitUsage)
	l.ctl(t, "lock", "show", "tenant/7 ä").expect(t, exitOK, "host-1", tokens[0], "waiting  0")
	l.ctl(t, "lock", "show", "nothing").expect(t, exitOK, "free")
	l.ctl(t, "lock", "rm", "b").expect(t, exitUsage, "--reason")
	l.ctl(t, "lock", "rm", "b", "--reason", "r", "--if-token", "1").expect(t, exitFailure, "conflict", tokens[1])
	l.ctl(t, "lock", "rm", "b", "--reason", "make room", "--author", "ann", "--if-token", tokens[1]).expect(t, exitOK, tokens[1], "stops at its next check")
	l.ctl(t, "lock", "ls").expect(t, exitOK, "revoked: make room")
	l.ctl(t, "lock", "rm", "tenant/7 ä", "--reason", "r", "--now", "-o", "json").expect(t, exitOK, `"now": true`, tokens[0])
	l.ctl(t, "lock", "rm", "tenant/7 ä", "--reason", "r").expect(t, exitFailure, "not_found", "is free")
	lines := strings.Split(l.ctl(t, "lock", "log").expect(t, exitOK, "default/ann", "make room", "asked", "at once").out, "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], tokens[0]) || !strings.Contains(lines[2], tokens[1]) { // the newest first
		t.Error(lines)
	}
	l.ctl(t, "lock", "log", "--limit", "1", "-o", "json").expect(t, exitOK, tokens[0])
	l.ctl(t, "lock", "log", "--limit", "1001").expect(t, exitFailure, "invalid_argument")
}

// TestLeftText: a lease without an end is told in words.
func TestLeftText(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]server.Lock{
		"-": {}, "29.7s": {Held: true, LeftMS: 29_700}, "no end": {Held: true, LeftMS: -1},
	} {
		if got := leftText(&l); got != want {
			t.Errorf("%+v has %q left, expected %q", l, got, want)
		}
	}
}

// TestLockPath: any name of a lock is one part of a path.
func TestLockPath(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", "a/b", "a?b#c", "a%2Fb", "ä {x}"} {
		path := (&oneLock{Key: key}).path()
		u, err := url.Parse("http://h" + path)
		if err != nil || u.Path != locksPath+"/"+key || strings.Count(u.EscapedPath(), "/") != 3 {
			t.Errorf(`%q: %q %v; want no error, u.Path == locksPath+"/"+key, strings.Count(u.EscapedPath(), "/") == 3`, key, path, err)
		}
	}
}
