package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// listFile writes a file of a list.
func listFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func ids(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "user-%d\n", i)
	}
	return b.String()
}

// sorted are the lines of a text.
func sorted(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// TestListsViews: what operators see of a list, from its import to its rollback.
func TestListsViews(t *testing.T) {
	t.Parallel()
	l := start(t)
	ctl := func(args ...string) result { t.Helper(); return l.ctl(t, append([]string{"lists"}, args...)...) }
	ctl("apply", "vip").expect(t, exitOK)
	ctl("import", "vip", listFile(t, "vip.csv", "a\nb,4000000000\n\nc,soon\n\"d,e\"\nf,1000000000\n")).
		expect(t, exitOK, "3 rejected, of which 1 expired before the import", "schedctl lists accept vip 1")
	ctl("rejects", "vip", "1").expect(t, exitOK, "LINE  WHY", "3     invalid id: it is empty", "4     the expiry is no time")
	ctl("rejects", "vip").expect(t, exitUsage, "name a version or --upload")
	ctl("export", "vip").expect(t, exitFailure, "conflict", "list vip serves no version; version must name one")
	ctl("diff", "vip", "1").expect(t, exitFailure, "list vip serves no version; with must name one")
	ctl("accept", "vip", "1").expect(t, exitOK, "version 1 of list vip is accepted")
	ctl("switch", "vip", "1").expect(t, exitOK)
	ctl("add", "vip", "g").expect(t, exitOK)
	ctl("remove", "vip", "a", "z").expect(t, exitOK)

	if got := sorted(ctl("export", "vip").expect(t, exitOK).out); got != `"d,e", b,4000000000000 g, id,expiry` {
		t.Errorf("export: %q", got)
	}
	if got := sorted(ctl("export", "vip", "--bare", "--format", "txt").expect(t, exitOK).out); got != "a b d,e" {
		t.Errorf("bare export: %q", got)
	}
	file := filepath.Join(t.TempDir(), "vip.txt.gz")
	ctl("export", "vip", file, "--version", "1").expect(t, exitOK, "3 ids of version 1 with edits up to revision", file)
	f, err := os.Open(file)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	unpacked, err := gzip.NewReader(f)
	must(t, err)
	text, err := io.ReadAll(unpacked)
	must(t, err)
	if got := sorted(string(text)); got != "b d,e g" {
		t.Errorf("export to a file: %q", got)
	}

	ctl("import", "vip", listFile(t, "next.csv", "a\nb,4000000001\nh\n"), "--author", "ann").expect(t, exitOK, "version 2 of list vip is ready")
	ctl("diff", "vip", "2").expect(t, exitOK,
		"version 2 against version 1: 1 added, 1 removed, 1 with another expiry, 1 the same", "+  h", "-  d,e", "~  b", "a switch takes back 2 edited ids", "add     g", "remove  a")
	var diff manage.ListDiff
	must(t, json.Unmarshal([]byte(ctl("diff", "vip", "1", "2", "-o", "json").expect(t, exitOK).out), &diff))
	if diff.Added.Count != 1 || diff.Added.Examples[0].ID != "d,e" || diff.Dropped.Count != 0 {
		t.Errorf(`%+v; want diff.Added.Count == 1, diff.Added.Examples[0].ID == "d,e", diff.Dropped.Count == 0`, diff)
	}
	ctl("diff", "vip", "1").expect(t, exitFailure, "with is version 1 itself")
	ctl("diff", "vip", "9").expect(t, exitFailure, "list vip has no version 9")
	ctl("sample", "vip", "2", "--count", "2").expect(t, exitOK, "ID", "EXPIRES")
	if got := sorted(ctl("sample", "vip", "2").expect(t, exitOK).out); !strings.HasPrefix(got, "ID  EXPIRES a   - b   2096-") {
		t.Errorf("sample: %q", got)
	}
	ctl("rejects", "vip", "2").expect(t, exitOK)
	uploads := ctl("uploads", "ls", "vip").expect(t, exitOK, "ready  replace").out
	id := strings.Fields(strings.Split(uploads, "\n")[1])[0]
	ctl("rejects", "vip", "--upload", id).expect(t, exitOK, "invalid id: it is empty")
	ctl("uploads", "show", id, "-o", "json").expect(t, exitOK, `"state": "ready"`, `"author": "`)
	ctl("uploads", "show", id).expect(t, exitOK, "state       ready", "doubt       2 lines were rejected", "expired     1", "header      false", "lines       6")
	ctl("uploads", "rm", id).expect(t, exitOK, "upload "+id+" is forgotten")
	ctl("rejects", "vip", "1").expect(t, exitFailure, "not_found", "an upload goes a day after its last change")

	ctl("rollback", "vip").expect(t, exitFailure, "list vip has no version before 1 that has served")
	ctl("switch", "vip", "2", "--wait").expect(t, exitOK)
	ctl("rollback", "vip", "2").expect(t, exitUsage, "version 2 is not older than version 2")
	ctl("rollback", "vip").expect(t, exitOK, "list vip serves version 1")
	ctl("apply", "later").expect(t, exitOK)
	for _, args := range [][]string{{"--switch"}, nil, {"--switch"}} { // version 2 never serves
		ctl(append([]string{"import", "later", listFile(t, "more.csv", "a\nb\n")}, args...)...).expect(t, exitOK)
	}
	ctl("rollback", "later").expect(t, exitOK, "list later serves version 1")

	began := ctl("session", "begin", "vip", "--note", "spring").expect(t, exitOK, "of list vip began").out
	session := strings.Fields(began)[1]
	ctl("session", "add", "vip", session, "i", "j").expect(t, exitOK, "2 ids are staged")
	ctl("session", "remove", "vip", session, "b").expect(t, exitOK, "3 ids are staged")
	ctl("query", "vip", "i").expect(t, exitOK, "no")
	ctl("session", "commit", "vip", session).expect(t, exitOK, "list vip is at revision")
	ctl("query", "vip", "i").expect(t, exitOK, "yes")
	session = strings.Fields(ctl("session", "begin", "vip").expect(t, exitOK).out)[1]
	ctl("session", "cancel", "vip", session).expect(t, exitOK, "is cancelled")
	ctl("session", "begin", "vip").expect(t, exitOK)
	ctl("cancel", "vip").expect(t, exitOK, "edit of list vip is cancelled")
	ctl("freeze", "vip").expect(t, exitOK, "list vip is frozen")
	if got := sorted(ctl("export", "vip", "--format", "txt").expect(t, exitOK).out); got != "d,e g i j" {
		t.Errorf("export of a frozen list: %q", got)
	}
	ctl("unfreeze", "vip").expect(t, exitOK, "list vip can change again")
	ctl("rm", "vip").expect(t, exitOK, "list vip is deleted")
}

// TestListsShowTheirEnd: a list that has ended does not look like one that serves.
func TestListsShowTheirEnd(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip", "--expires", "1s").expect(t, exitOK)
	l.ctl(t, "lists", "apply", "other", "--expires", "1000h").expect(t, exitOK)
	day := time.Now().Add(1000 * time.Hour).Format("  2006-01-02")
	l.ctl(t, "lists", "show", "other").expect(t, exitOK, "EXPIRES", day)
	must(t, redistest.Await(func(context.Context) bool {
		return strings.Contains(l.ctl(t, "lists", "show", "vip").expect(t, exitOK).out, "ended 20")
	}))
	l.ctl(t, "lists", "ls").expect(t, exitOK, "EXPIRES", "ended 20", day)
}

// TestListsExportIsWholeOrNothing: what was cut or refused leaves no file, and no half one.
func TestListsExportIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	l.ctl(t, "lists", "import", "vip", listFile(t, "vip.txt", ids(20_000)), "--switch").expect(t, exitOK, "it serves")
	dir := t.TempDir()
	file := filepath.Join(dir, "out.txt")
	must(t, os.WriteFile(file, []byte("before\n"), 0o600))
	client := redistest.Shared(t).Client(t)
	var shown struct{ Serving namelist.Version }
	must(t, json.Unmarshal([]byte(l.ctl(t, "lists", "show", "vip", "-o", "json").out), &shown))
	must(t, client.Do(t.Context(), client.B().Del().Key(namelist.SegmentKey(l.prefix, "vip", 1, shown.Serving.Segments-1)).Build()).Error())
	l.ctl(t, "lists", "export", "vip", file).expect(t, exitFailure, "the answer was cut")
	l.ctl(t, "lists", "export", "none", file).expect(t, exitFailure, "there is no list none")
	content, err := os.ReadFile(file)
	must(t, err)
	files, err := os.ReadDir(dir)
	must(t, err)
	if string(content) != "before\n" || len(files) != 1 {
		t.Errorf("%q in %v", content, files)
	}
	l.ctl(t, "lists", "verify", "vip", "1").expect(t, exitFailure, "is damaged")
	l.ctl(t, "lists", "export", "vip", file).expect(t, exitFailure, "version 1 of list vip is damaged")
}

// TestListsExportEndsWithItsReplica: a replica that stops waits for no client that reads nothing.
func TestListsExportEndsWithItsReplica(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	// More than the buffers of the connection take.
	const length, n = 250, 40_000
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%0*d\n", length, i)
	}
	l.ctl(t, "lists", "import", "vip", listFile(t, "vip.txt", text.String()), "--switch").expect(t, exitOK, "it serves")
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+l.server.Addr()+"/v1/lists/vip/export", http.NoBody)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	ctx := waittest.Context(t)
	must(t, l.server.Stop(ctx))
	got, err := io.Copy(io.Discard, resp.Body)
	must(t, resp.Body.Close())
	if !errors.Is(err, io.ErrUnexpectedEOF) || got >= n*length || resp.Trailer.Get("X-Freeslot-Count") != "" {
		t.Errorf("%d bytes, %v, trailer %v; expected a cut answer", got, err, resp.Trailer)
	}
}

// TestListsNextStep: a refusal says what to do.
func TestListsNextStep(t *testing.T) {
	t.Parallel()
	l := start(t)
	ctl := func(args ...string) result { t.Helper(); return l.ctl(t, append([]string{"lists"}, args...)...) }
	file := listFile(t, "grey.txt", "a\n\n")
	for _, args := range [][]string{{"import", "grey", file}, {"add", "grey", "a"}, {"session", "begin", "grey"}} {
		ctl(args...).expect(t, exitFailure, "there is no list grey", "`schedctl lists apply grey` creates it")
	}
	ctl("apply", "grey").expect(t, exitOK)
	ctl("add", "grey", "a").expect(t, exitFailure, "list grey is in state draft", "import a version and switch to it first")
	ctl("query", "grey", "a").expect(t, exitFailure, "list grey serves no version; import one and switch to it first")
	ctl("import", "grey", file).expect(t, exitOK)
	ctl("switch", "grey", "1").expect(t, exitFailure, "it waits to be accepted", "accept it first")
}

// TestProgressBar: a bar replaces itself on a terminal, and nothing else sees it.
func TestProgressBar(t *testing.T) {
	t.Parallel()
	var out buffer
	a := &app{environment: &environment{err: &out}}
	a.progress("upload", 1, 2)
	a.errTerminal = true
	a.progress("upload", 1, 3)
	a.progress("sort", 0, 0) // its size is not known yet
	a.progress("verify", 3, 2)
	a.progress("", 0, 0)
	const erase = "\r\x1b[K"
	want := erase + "upload  [##########                    ]  33 %" + erase + "verify  [" + strings.Repeat("#", barWidth) + "] 100 %" + erase
	if out.String() != want {
		t.Errorf("%q, expected %q", out.String(), want)
	}
}
