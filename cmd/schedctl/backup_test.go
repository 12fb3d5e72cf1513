package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot/cmd/schedctl/archive"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// backupTokens has a token of each role that a backup or a restore may meet.
func backupTokens(c *config.Replica) {
	for _, role := range []identity.Role{identity.Admin, identity.Viewer, identity.Client} {
		tenant := "ops"
		if role == identity.Client {
			tenant = "acme"
		}
		c.Tokens = append(c.Tokens, config.Token{Token: string(role) + "-token", Tenant: tenant, Role: role})
	}
}

// startForBackup starts a system with a source of lists and more tokens than the first of them.
func startForBackup(t *testing.T, change ...func(*config.Replica)) *live {
	t.Helper()
	file := listFile(t, "crm.csv", "a\n")
	return startWith(t, func(c *config.Replica) {
		c.Lists.Sources = map[string]config.ListSource{"crm": {Kind: "file", Path: file}}
		backupTokens(c)
		for _, do := range change {
			do(c)
		}
	})
}

// tokensOf writes a file of tokens with these names.
func tokensOf(t *testing.T, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		all.WriteString(command(t, "", "tokens", "new", name, "--tenant", "acme", "--role", "client").expect(t, exitOK).err)
	}
	return listFile(t, "tokens.yaml", all.String())
}

func (l *live) admin(t *testing.T, args ...string) result {
	t.Helper()
	return l.ctl(t, append(args, "--token", "admin-token")...)
}

// setUp sets up something of each kind.
func (l *live) setUp(t *testing.T) {
	t.Helper()
	do := func(args ...string) { t.Helper(); l.admin(t, args...).expect(t, exitOK) }
	do("config", "apply", listFile(t, "pools.yaml", "pools: [{id: gpu, labels: {gpu: a100}}]"), "--note", "first")
	do("pause", "service", "tts")
	do("lists", "applications", "apply", "shop", "--tenant", "acme", "--contact", "ann", "--with-token", "shop-token")
	do("lists", "apply", "vip", "--application", "shop", "--expires", "30d", "--on-expired", "no")
	do("lists", "import", "vip", listFile(t, "1.csv", "a,4000000000\nb\n\"c,d\"\n"+ids(3000)), "--switch", "--note", "one")
	do("lists", "add", "vip", "e")
	do("lists", "import", "vip", listFile(t, "2.txt", ids(2990)), "--note", "two", "--switch")
	do("lists", "remove", "vip", "user-7")
	do("lists", "import", "vip", listFile(t, "3.txt", "id\nid2\n"), "--header", "no", "--note", "three")
	do("lists", "grant", "vip", "--to", "olga", "--may", "query,edit")
	do("lists", "source", "set", "vip", "crm", "--every", "@yearly")
	do("lists", "apply", "draft", "--form", "integer")
	do("lists", "apply", "old")
	do("lists", "import", "old", listFile(t, "old.txt", "x\n"), "--switch")
	do("lists", "freeze", "old")
	do("lists", "chain", "apply", "canary", listFile(t, "chain.json", canaryChain(5, "vip")), "--note", "five")
	do("lists", "chain", "apply", "canary", listFile(t, "chain.json", canaryChain(10, "vip")))
	do("lists", "chain", "shadow", "canary", listFile(t, "chain.json", canaryChain(20, "old")))
	do("registry", "config", "set", "limits", writeFile(t, "a: <1>\n"), "--note", "first")
	do("registry", "config", "set", "limits", writeFile(t, "a: 2\n"))
	do("registry", "put", "db", "--host", "10.1.2.3", "--port", "5432", "--id", "main", "--label", "zone=eu", "--weight", "3")
	do("registry", "set", "db", "main", "--draining", "--note", "moves")
	do("registry", "set", "db", "--limit", "12s")
	for _, name := range []string{"nightly", "weekly"} {
		text := fmt.Sprintf(`{"name": %q, "cron": "0 4 * * 1", "time_zone": "Europe/Berlin", "job": {"service": "echo", "payload": {"n": 1}}}`, name)
		do("schedules", "apply", "-f", listFile(t, "s.json", text))
	}
	do("schedules", "pause", "weekly")
}

// contents returns the records of a backup without what a restore cannot keep: numbers of versions,
// and authors.
func contents(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer func() { _ = f.Close() }()
	r, err := archive.NewReader(f)
	must(t, err)
	var out []string
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		var fields map[string]any
		must(t, json.Unmarshal(record.Data, &fields))
		for _, name := range []string{"version", "number", "serving", "author", "revision"} {
			delete(fields, name)
		}
		for _, inner := range []string{"source", "override"} {
			if m, ok := fields[inner].(map[string]any); ok {
				delete(m, "author")
			}
		}
		if fields["doubt"] != nil { // it tells numbers without edits
			fields["doubt"] = true
		}
		if csv, ok := fields["csv"].(string); ok { // in the order of a hash with another seed
			fields["csv"] = sorted(csv)
		}
		text, err := json.Marshal(fields)
		must(t, err)
		out = append(out, record.Kind+" "+string(text))
	}
}

// sameContents compares two backups.
func sameContents(t *testing.T, one, other string) {
	t.Helper()
	before, after := contents(t, one), contents(t, other)
	for _, record := range before {
		if !slices.Contains(after, record) {
			t.Errorf("not restored: %s", shorten(record, 600))
		}
	}
	for _, record := range after {
		if !slices.Contains(before, record) {
			t.Errorf("restored, and not in the backup: %s", shorten(record, 600))
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d records in the backup, %d in a backup of what was restored", len(before), len(after))
	}
}

// TestBackupAndRestore: a backup of what was restored has the same content, and lists answer the
// same. What was restored is not restored again.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	from, to := startForBackup(t), startForBackup(t)
	from.setUp(t)
	folder := t.TempDir()
	file, again := filepath.Join(folder, "backup.gz"), filepath.Join(folder, "again.json")
	got := from.admin(t, "backup", file)
	got.expect(t, exitOK, file+": 1 configuration of pools, 1 application, 3 lists, 4 versions of lists, 5995 ids",
		"2 versions of chains, 1 shadow, 2 versions of documents, 1 persistent instance, 1 override, 1 cleanup setting, 2 schedules")
	command(t, "", "restore", file, "--check").expect(t, exitOK, "5995 ids", "2 schedules")

	to.admin(t, "restore", file).expect(t, exitOK, "KIND", "pools ", "schedule      2")
	to.admin(t, "backup", again).expect(t, exitOK)
	sameContents(t, file, again)
	for _, of := range []*live{from, to} {
		of.admin(t, "lists", "query", "vip", "e", "user-7", "user-8").
			expect(t, exitOK, "e       no", "user-7  no", "user-8  yes")
		of.admin(t, "config", "show").expect(t, exitOK, "id: gpu", "tts")
	}
	to.admin(t, "lists", "rollback", "vip", "1").expect(t, exitOK)
	to.admin(t, "lists", "query", "vip", "a", "e", "c,d", "user-8").
		expect(t, exitOK, "e       yes", "c,d     yes", "user-8  yes", "2096")

	to.admin(t, "restore", file).expect(t, exitFailure, "the system is not empty, it has pools (version 1)",
		"applications shop; lists draft, old, vip; chains canary; documents limits; schedules nightly, weekly; instances db/main",
		"nothing was changed")
}

// TestBackupByPipe: a backup goes to standard output and comes from standard input, and tells on
// standard error what it has.
func TestBackupByPipe(t *testing.T) {
	t.Parallel()
	from, to := startForBackup(t), startForBackup(t)
	from.admin(t, "registry", "config", "set", "limits", writeFile(t, "a: 1\n")).expect(t, exitOK)
	got := from.ctl(t, "backup", "-", "--token", "viewer-token")
	got.expect(t, exitOK)
	if !strings.Contains(got.err, "not in the backup: names of tokens") || !strings.Contains(got.err, "1 version of a document") {
		t.Errorf("%q; want what is in the backup, and that no names of tokens are", got.err)
	}
	if _, err := archive.NewReader(strings.NewReader(got.out)); err != nil {
		t.Error(err)
	}
	args := []string{"--server", to.server.Addr(), "--token", "admin-token", "restore", "-"}
	command(t, got.out[:len(got.out)-5], args...).expect(t, exitFailure, "standard input: the backup is cut off", "nothing was changed")
	command(t, got.out, append(args, "-o", "json")...).expect(t, exitOK, `"kind": "document"`, `"restored": 1`)
	to.admin(t, "registry", "config", "get", "limits").expect(t, exitOK, "a: 1")
}

// TestRestoreRefuses: nothing changes if the caller may not restore, if Redis' clock is behind the
// backup, or if the file is no backup that this release knows.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	l := startForBackup(t)
	l.ctl(t, "backup", "-", "--token", "client-token").expect(t, exitFailure, "role is client, expected viewer or admin")
	made := func(at time.Time, kind string, data any) string {
		var out bytes.Buffer
		w, err := archive.NewWriter(&out, archive.Header{ID: "7f", AtMS: at.UnixMilli(), Release: "v1"})
		must(t, err)
		must(t, w.Write(kind, data))
		must(t, w.Close())
		return listFile(t, "backup", out.String())
	}
	document := documentRecord{Name: "limits", Version: 1, Content: "a: 1"}
	l.ctl(t, "restore", made(time.Now(), kindDocument, document), "--token", "viewer-token").
		expect(t, exitFailure, "role is viewer, expected admin", "nothing was changed")
	l.admin(t, "restore", made(time.Now().Add(time.Hour), kindDocument, document)).
		expect(t, exitFailure, "the clock of Redis is at", "fencing tokens", "nothing was changed")
	l.admin(t, "restore", filepath.Join(t.TempDir(), "none")).expect(t, exitUsage, "no such file")
	l.admin(t, "restore", listFile(t, "b", "id,expiry\n")).expect(t, exitFailure, "this is no backup")
	l.admin(t, "restore", listFile(t, "b", `{"format":"freeslot-backup","version":2,"release":"v9"}`+"\n")).
		expect(t, exitFailure, "a later release made this backup", "v9")

	at := time.Now().Add(-time.Minute)
	l.admin(t, "restore", made(at, "unheard-of", document)).
		expect(t, exitFailure, "kind \"unheard-of\", which is unknown", "nothing was changed")
	later := map[string]any{"name": "limits", "version": 1, "content": "a: 1", "unheard_of": true}
	l.admin(t, "restore", made(at, kindDocument, later)).expect(t, exitFailure, "unheard_of", "nothing was changed")
	if got := l.admin(t, "registry", "config", "ls").expect(t, exitOK).out; strings.Contains(got, restoreMark) {
		t.Errorf("a restore that was refused has begun: %s", got)
	}
}

// TestRestoreGoesOn: a restore that is interrupted says what is in, and goes on when it is run
// again with the same backup. Another backup is refused meanwhile.
func TestRestoreGoesOn(t *testing.T) {
	t.Parallel()
	from, to := startForBackup(t), startForBackup(t)
	from.setUp(t)
	folder := t.TempDir()
	file, other, again := filepath.Join(folder, "one"), filepath.Join(folder, "other"), filepath.Join(folder, "again")
	from.admin(t, "backup", file).expect(t, exitOK)
	from.admin(t, "backup", other).expect(t, exitOK)
	// Each of these requests is cut off the first time.
	cut := []string{
		"POST /v1/lists/vip/uploads 2", "POST /v1/lists/vip/switch 2", "PUT /v1/chains/canary 2",
		"PUT /admin/registry/config/limits 2", "PUT /v1/schedules/weekly 1",
	}
	var mu sync.Mutex
	seen := map[string]int{}
	proxy := before(t, func(*http.Request) string { return to.server.Addr() }, func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		call := r.Method + " " + r.URL.Path
		seen[call]++
		if i := slices.Index(cut, fmt.Sprintf("%s %d", call, seen[call])); i >= 0 {
			cut = slices.Delete(cut, i, i+1)
			panic(http.ErrAbortHandler)
		}
	})
	restore := func(file string) result {
		return command(t, "", "--server", proxy, "--token", "admin-token", "restore", file)
	}
	uncut := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(cut)
	}
	for left := len(uncut()); left > 0; left-- {
		restore(file).expect(t, exitFailure, "the restore is not at its end", "pools", "run it again with the same backup: it goes on")
		if got := uncut(); len(got) != left-1 {
			t.Fatalf("%q were not cut off, expected %d of them", got, left-1)
		}
		restore(other).expect(t, exitFailure, "a restore of another backup", "nothing was changed")
	}
	restore(file).expect(t, exitOK, "THERE BEFORE")
	to.admin(t, "backup", again).expect(t, exitOK)
	sameContents(t, file, again)
}

// TestRestoreReports: what the system refuses is named with the reason, and the rest is restored.
func TestRestoreReports(t *testing.T) {
	t.Parallel()
	from := startForBackup(t, func(c *config.Replica) { c.TokensFile = tokensOf(t, "ci", "gone") })
	to := startForBackup(t, func(c *config.Replica) { c.TokensFile = tokensOf(t, "ci"); c.Lists.Sources = nil })
	from.admin(t, "lists", "apply", "vip").expect(t, exitOK)
	from.admin(t, "lists", "source", "set", "vip", "crm", "--every", "@yearly").expect(t, exitOK)
	from.admin(t, "registry", "config", "set", "limits", writeFile(t, "a: 1\n")).expect(t, exitOK)
	file := filepath.Join(t.TempDir(), "backup")
	from.admin(t, "backup", file).expect(t, exitOK, "2 names of tokens")
	to.admin(t, "restore", file).expect(t, exitFailure, "list vip: invalid_argument", "lists.sources",
		"token gone of tokens_file is missing here", "1 thing was not restored")
	to.admin(t, "registry", "config", "get", "limits").expect(t, exitOK, "a: 1")
}

// TestBackupJobs: jobs that have not ended are submitted anew for their tenants, with
// their idempotency keys.
func TestBackupJobs(t *testing.T) {
	t.Parallel()
	from, to := startForBackup(t), startForBackup(t)
	ended := strings.TrimSpace(from.admin(t, "submit", "echo", `{"n":1}`, "--wait", "-o", "json").expect(t, exitOK).out)
	runs := strings.TrimSpace(from.ctl(t, "submit", "block", `{"n":2}`, "--token", "client-token").expect(t, exitOK).out)
	soon(t, from.started, "the job that blocks")
	later := strings.TrimSpace(from.admin(t, "submit", "echo", `{"n":3}`, "--in", "48h", "--idempotency-key", "k").expect(t, exitOK).out)
	file := filepath.Join(t.TempDir(), "backup")
	from.admin(t, "backup", file, "--jobs").expect(t, exitOK, ": 2 jobs")
	close(from.release)
	to.admin(t, "restore", file).expect(t, exitOK, "job   2")
	soon(t, to.started, "the job that blocks, in the other system")
	got := to.admin(t, "list", "-o", "json").expect(t, exitOK).out
	for _, part := range []string{`"service": "block"`, `"tenant": "acme"`, `"state": "scheduled"`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s among the jobs %s", part, got)
		}
	}
	if strings.Contains(got, `"n":1`) || ended == "" || runs == later {
		t.Errorf("%s; want only the jobs that had not ended", got)
	}
	close(to.release)
	again := to.admin(t, "list", "--idempotency-key", "k", "--tenant", "ops", "-o", "json").expect(t, exitOK).out
	if !strings.Contains(again, `"state": "scheduled"`) {
		t.Errorf("the key of job %s leads to %s; want the job that was restored", later, again)
	}
}
