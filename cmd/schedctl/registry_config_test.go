package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestRegistryConfig: the life of a document by its commands.
func TestRegistryConfig(t *testing.T) {
	t.Parallel()
	l := start(t)
	config := func(args ...string) result { return l.ctl(t, append([]string{"registry", "config"}, args...)...) }
	config("ls").expect(t, exitOK, "NAME", "VERSION")
	config("get", "limits").expect(t, exitFailure, "not_found", "limits")
	config("set", "limits", writeFile(t, "a: 1\n"), "--author", "ann", "--note", "first").expect(t, exitOK, "limits is at version 1")
	config("set", "limits", writeFile(t, "a: 2\n"), "--author", "ann").expect(t, exitOK, "limits is at version 2")
	config("set", "limits", writeFile(t, "a: 3\n"), "--seen", "1").expect(t, exitFailure, "conflict", "at version 2")
	config("ls").expect(t, exitOK, "limits", "2")
	if got := config("get", "limits").expect(t, exitOK); got.out != "a: 2\n" {
		t.Errorf(`%q; want got.out == "a: 2\n"`, got.out)
	}
	config("get", "limits", "--version", "1").expect(t, exitOK, "a: 1")
	config("history", "limits").expect(t, exitOK, "VERSION", "/ann", "first")
	config("diff", "limits").expect(t, exitOK, "--- limits version 1\n+++ limits version 2\n", "-a: 1\n+a: 2\n")
	config("diff", "limits", "--from", "2", "--to", "2").expect(t, exitOK, "are equal")
	config("rollback", "limits", "1").expect(t, exitOK, "limits is at version 3")
	config("rollback", "limits", "9").expect(t, exitFailure, "not_found", "no version 9")
	config("get", "limits", "-o", "json").expect(t, exitOK, `"restores": 1`, `"content": "a: 1\n"`)
	config("rm", "limits", "--seen", "1").expect(t, exitFailure, "conflict")
	config("rm", "limits").expect(t, exitOK, "limits is deleted")
	config("rm", "limits").expect(t, exitFailure, "not_found")
	config("set", "a b", writeFile(t, "a")).expect(t, exitFailure, "invalid_argument", "name")
}

// TestRegistryCleanup: an answer without content is none that schedctl cannot read.
func TestRegistryCleanup(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "registry", "put", "db", "--host", "10.1.2.3", "--port", "5432").expect(t, exitOK, "revision 1")
	l.ctl(t, "registry", "set", "db", "--limit", "12s").expect(t, exitOK, "cleanup of db is set")
}

// TestRegistryConfigWatch: it prints what is there, each change and the end.
func TestRegistryConfigWatch(t *testing.T) {
	t.Parallel()
	l := start(t)
	ctx, end := context.WithCancel(waittest.Context(t))
	defer end()
	out, done := &buffer{written: make(chan struct{}, 1)}, make(chan int, 1)
	go func() {
		args := []string{"--server", l.server.Addr(), "registry", "config", "watch", "w"}
		done <- run(args, &environment{ctx: ctx, in: strings.NewReader(""), out: out, err: out})
	}()
	for i, change := range [][]string{nil, {"set", "w", writeFile(t, "one")}, {"set", "w", writeFile(t, "two")}, {"rm", "w"}} {
		if change != nil {
			l.ctl(t, append([]string{"registry", "config"}, change...)...).expect(t, exitOK)
		}
		soon(t, out.written, "line "+fmt.Sprint(i))
	}
	end()
	if code := soon(t, done, "watch to end"); code != exitOK {
		t.Errorf("exit code is %d", code)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, part := range []string{`"version":0`, `"content":"one"`, `"content":"two"`, `"version":0`} {
		if i >= len(lines) || !strings.Contains(lines[i], part) {
			t.Fatalf("no %s as line %d of %s", part, i+1, out.String())
		}
	}
}
