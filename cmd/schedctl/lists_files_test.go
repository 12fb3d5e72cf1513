//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/process/terminal"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestListsExportInto: a file keeps its mode, a symbolic link its target, and a device stays one.
func TestListsExportInto(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	l.ctl(t, "lists", "import", "vip", listFile(t, "vip.txt", "a\n"), "--switch").expect(t, exitOK)
	folder := t.TempDir()
	file, link, fifo := filepath.Join(folder, "vip.csv"), filepath.Join(folder, "link.csv"), filepath.Join(folder, "fifo")
	must(t, os.WriteFile(file, []byte("before"), 0o600))
	must(t, os.Chmod(file, 0o644))
	must(t, os.Symlink("vip.csv", link))
	const want = "id,expiry\na,\n"
	// One id at version 1: the numbers of an export are not mixed up.
	got := l.ctl(t, "lists", "export", "vip", link).expect(t, exitOK, link+": 1 id of version 1 with edits up to revision")
	if strings.Contains(got.out, "version 0") {
		t.Error(got.out)
	}
	data, err := os.ReadFile(file)
	must(t, err)
	info, err := os.Lstat(link)
	must(t, err)
	mode, err := os.Stat(file)
	must(t, err)
	if string(data) != want || info.Mode()&os.ModeSymlink == 0 || mode.Mode().Perm() != 0o644 {
		t.Errorf("%q, %v, %v, expected the export, the link and mode 0644", data, info.Mode(), mode.Mode())
	}
	var of exported
	must(t, json.Unmarshal([]byte(l.ctl(t, "lists", "export", "vip", file, "-o", "json").expect(t, exitOK).out), &of))
	if of.Version != 1 || of.Count != 1 {
		t.Errorf("%+v, expected 1 id of version 1", of)
	}
	must(t, syscall.Mkfifo(fifo, 0o600))
	read := make(chan string, 1)
	go func() { data, _ := os.ReadFile(fifo); read <- string(data) }()
	l.ctl(t, "lists", "export", "vip", fifo).expect(t, exitOK)
	if got := soon(t, read, "the export by a pipe"); got != want {
		t.Errorf("%q by the pipe, expected %q", got, want)
	}
	l.ctl(t, "lists", "export", "vip", "/dev/null").expect(t, exitOK)
	if info, err := os.Lstat("/dev/null"); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("/dev/null is %v, %v", info.Mode(), err)
	}
	l.ctl(t, "lists", "export", "none", file).expect(t, exitFailure, "there is no list none")
	if data, _ := os.ReadFile(file); string(data) != want {
		t.Errorf("%q, expected the file as before a failed export", data)
	}
	l.ctl(t, "lists", "export", "vip", folder).expect(t, exitUsage, "is a folder")
	l.ctl(t, "lists", "export", "vip", "").expect(t, exitUsage, "the name is empty, expected a file")
}

// TestListsImportFromAnywhere: standard input, a pipe and a file are read to their ends. What cannot
// be read leaves no upload behind.
func TestListsImportFromAnywhere(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	text, n := longIDs()
	args := []string{"--server", l.server.Addr(), "lists", "import", "vip"}
	inTime(t, func() result { return command(t, text, append(args, "-", "--switch")...) }).expect(t, exitOK, "of "+plainCount(n)+" lines", "it serves")
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	inTime(t, func() result {
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(fifo, []byte("one-more\n"), 0) }()
		r := command(t, "", append(args, fifo, "--mode", "add", "--switch")...)
		must(t, soon(t, written, "the pipe"))
		return r
	}).expect(t, exitOK, "of 1 line, ", "it serves")
	l.ctl(t, "lists", "query", "vip", "one-more").expect(t, exitOK, "yes")

	// Nothing waits to be accepted, in every mode.
	for _, mode := range []string{"replace", "add", "remove"} {
		inTime(t, func() result { return command(t, "", append(args, "-", "--mode", mode, "--switch")...) }).
			expect(t, exitFailure, "it does not serve: ", "of 0 lines")
	}
	before := l.ctl(t, "lists", "uploads", "ls", "vip").expect(t, exitOK).out
	command(t, "", append(args, t.TempDir())...).expect(t, exitUsage, "is a folder, expected a file")
	command(t, "", append(args, filepath.Join(t.TempDir(), "none"))...).expect(t, exitUsage, "no such file")
	var out buffer
	code := run(append(args, "-"), &environment{ctx: t.Context(), in: brokenReader{}, out: &out, err: &out})
	result{code, "", out.String()}.expect(t, exitUsage, "broken")
	if after := l.ctl(t, "lists", "uploads", "ls", "vip").expect(t, exitOK).out; strings.Count(after, "\n") != strings.Count(before, "\n") {
		t.Errorf("uploads before\n%s\nand after\n%s", before, after)
	}
}

// inTime repeats an import until Redis has answered all of it in time. On a busy machine it may
// not, and then the list is as before.
func inTime(t *testing.T, run func() result) (r result) {
	t.Helper()
	tries := 0
	waittest.Until(t, "an import that Redis answers in time", func() bool {
		tries++
		r = run()
		return !strings.Contains(r.err, "i/o timeout")
	}, func() any { return tries })
	return r
}

func plainCount(n int) string { data, _ := json.Marshal(n); return string(data) }

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

// TestListsImportReport: expired lines and headers are named in text, JSON and rejects.
func TestListsImportReport(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	file := listFile(t, "vip.csv", "user_id\n1.2.3.4,3600\nb,1500000000\nc\n")
	l.ctl(t, "lists", "import", "vip", file).expect(t, exitOK,
		"line 1 looks like a header and was read as an id: user_id; --header yes leaves it out",
		"line 2: the expiry is a number below 100000000, which is no time", "line 3: expired before the import",
		"version 1 of list vip is ready: 2 ids of 4 lines, 0 duplicates, 2 rejected, of which 1 expired before the import",
		"it does not serve: 1 line was rejected")
	l.ctl(t, "lists", "rejects", "vip", "1").expect(t, exitOK, "expired before the import")
	var u server.ListUpload
	must(t, json.Unmarshal([]byte(l.ctl(t, "lists", "import", "vip", file, "--header", "yes", "-o", "json").expect(t, exitOK).out), &u))
	if !u.Report.Header || u.Report.HeaderLike != "" || u.Report.Expired != 1 || u.Version.Count != 1 {
		t.Errorf("%+v, %+v, expected a header, an expired line, and one id", u.Report, u.Version)
	}
	l.ctl(t, "lists", "import", "vip", listFile(t, "vip.csv", "\"ID\",\"Expiry\"\na\n"), "--switch").expect(t, exitOK, ": 1 id of 2 lines, ", "it serves")
	l.ctl(t, "lists", "import", "vip", listFile(t, "vip.csv", "id\na\n"), "--header", "no", "--switch").expect(t, exitOK, ": 2 ids of 2 lines, ")
	l.ctl(t, "lists", "query", "vip", "a", "", "b").expect(t, exitFailure, "yes", "invalid id: it is empty", "unknown", "1 of 3 ids could not be answered")
}

// TestProgressIsForTerminals: nothing but a terminal that can show it gets the bar.
func TestProgressIsForTerminals(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(t, err)
	defer null.Close()
	t.Setenv("TERM", "xterm")
	if terminal.Is(null) {
		t.Error("/dev/null counts as a terminal")
	}
	var out bytes.Buffer
	for _, env := range []*environment{{terminal: true}, {errTerminal: true}} {
		env.err = &out
		(&app{environment: env}).progress("upload", 1, 2)
		if got := strings.Contains(out.String(), "\x1b"); got != env.errTerminal {
			t.Errorf("%+v: a bar: %v", env, got)
		}
	}
	if ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err == nil {
		defer ptmx.Close()
		if !terminal.Is(ptmx) {
			t.Error("a terminal counts as none")
		}
		t.Setenv("TERM", "dumb")
		if terminal.Is(ptmx) {
			t.Error("a terminal that knows no escape codes counts as one")
		}
	}
}
