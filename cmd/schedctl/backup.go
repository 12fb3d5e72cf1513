package main

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/schedctl/archive"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/process/output"
	"github.com/freeslot/freeslot/internal/process/version"
)

type backupCmd struct {
	Out  string `arg:"" help:"A regular file is replaced once it is whole; compressed where the name ends with .gz; - is standard output."`
	Jobs bool   `help:"Also the jobs that have not ended. A restore submits them anew."`
}

// Help is shown below the flags.
func (backupCmd) Help() string {
	return `Writes what operators have set up: pools, lists with their versions, chains, documents, the registry,
schedules, and the names of tokens. The system goes on to serve. docs/backup.md says what is not in it, and what
restore does.
  schedctl backup /var/backups/freeslot.gz
  schedctl backup - | age -r KEY > freeslot.age`
}

// Run writes the backup.
func (c *backupCmd) Run(a *app) error {
	b := &backup{app: a, withJobs: c.Jobs}
	if err := b.begin(); err != nil {
		return err
	}
	toOut := c.Out == "-" || a.isOut(c.Out)
	if toOut {
		out := bufio.NewWriter(a.out)
		if err := cmp.Or(b.write(out), out.Flush()); err != nil {
			return err
		}
	} else if err := c.file(b); err != nil {
		return err
	}
	return b.report(c.Out, toOut)
}

func (c *backupCmd) file(b *backup) error {
	file, err := output.CreatePrivate(c.Out)
	if err != nil {
		return usage("%w", err)
	}
	defer file.Discard()
	var packed *gzip.Writer
	out := io.Writer(file)
	if strings.HasSuffix(c.Out, ".gz") {
		packed = gzip.NewWriter(file)
		out = packed
	}
	if err := b.write(out); err != nil {
		return err
	}
	if packed != nil {
		if err := packed.Close(); err != nil {
			return err
		}
	}
	return file.Close()
}

// backup is a backup under way.
type backup struct {
	*app

	withJobs bool

	who  api.Whoami
	atMS int64
	w    *archive.Writer
	// counts has the number of records by kind, with lines of ids instead of their records.
	counts map[string]int64
	// lacks says what could not be read. bad is true if a list lacks what it serves.
	lacks []string
	bad   bool
}

// begin checks that the caller may read all, and asks for the time.
func (b *backup) begin() (err error) {
	if err = b.call(http.MethodGet, "/v1/whoami", nil, nil, &b.who); err != nil {
		return err
	}
	switch b.who.Role {
	case identity.Viewer, identity.Operator, identity.Admin:
	default:
		return fmt.Errorf("the token's role is %s, expected viewer or admin: a backup reads everything", b.who.Role)
	}
	b.counts = make(map[string]int64)
	b.atMS, err = b.redisMS()
	return err
}

// redisMS returns Redis' time.
func (a *app) redisMS() (int64, error) {
	var marks namelist.ListMarks
	// Any name will do.
	ask := namelist.ListMarksRequest{Lists: map[string]namelist.Mark{"freeslot": {}}}
	err := a.call(http.MethodPost, "/v1/list-marks", nil, ask, &marks)
	return marks.AtMS, err
}

// write writes the whole backup. Chains come after the lists that they ask, and schedules last,
// because they run as soon as they are restored.
func (b *backup) write(out io.Writer) (err error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	head := archive.Header{ID: hex.EncodeToString(id[:]), AtMS: b.atMS, Release: version.String()}
	if b.w, err = archive.NewWriter(out, head); err != nil {
		return err
	}
	for _, part := range []func() error{
		b.tokens, b.pools, b.applications, b.lists, b.chains, b.documents, b.services, b.jobs, b.schedules,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return b.w.Close()
}

func (b *backup) add(kind string, record any) error {
	if kind != kindIDs {
		b.counts[kind]++
	}
	return b.w.Write(kind, record)
}

func (b *backup) lack(format string, args ...any) {
	b.lacks = append(b.lacks, fmt.Sprintf(format, args...))
}

// get asks for something, and again if the replica is busy.
func (b *backup) get(path string, query url.Values, out any) error {
	return b.patiently(func() error { return b.call(http.MethodGet, path, query, nil, out) })
}

// patience is how often a call that a busy replica refused is repeated.
const patience = 6

// patiently repeats a call as long as the replica refuses it for the moment.
func (a *app) patiently(do func() error) error {
	for n := 0; ; n++ {
		err := do()
		if n == patience || !freeslot.CodeOf(err).Temporary() {
			return err
		}
		pause := listPause << n
		if e, ok := errors.AsType[*freeslot.Error](err); ok {
			pause = max(pause, e.RetryAfter)
		}
		if err := a.rest(pause); err != nil {
			return err
		}
	}
}

func (b *backup) tokens() error {
	if b.who.Role != identity.Admin {
		b.lack("names of tokens: only an admin may list them")
		return nil
	}
	all, err := b.allTokens()
	for i := range all {
		if err == nil {
			err = b.add(kindToken, all[i])
		}
	}
	return err
}

// allTokens returns the tokens that have a name.
func (a *app) allTokens() (all []tokenRecord, err error) {
	for query := (url.Values{}); ; {
		var page api.TokenPage
		if err := a.call(http.MethodGet, "/v1/tokens", query, nil, &page); err != nil {
			return nil, err
		}
		for i := range page.Tokens {
			if t := &page.Tokens[i]; t.Name != "" {
				all = append(all, tokenRecord{t.Source, t.Name, string(t.Role), t.Tenant, t.Nodes})
			}
		}
		if page.Cursor == "" {
			return all, nil
		}
		query.Set("cursor", page.Cursor)
	}
}

func (b *backup) pools() error {
	current, err := b.currentConfig()
	if err != nil {
		return err
	}
	switch {
	case current.Source == "file":
		return nil // it is in the configuration of the replicas
	case len(current.Problems) > 0:
		b.bad = true
		b.lack("pools: the configuration in Redis is broken; `schedctl config show` says why")
		return nil
	}
	text, err := json.Marshal(current.Config)
	if err != nil {
		return err
	}
	return b.add(kindPools, poolsRecord{current.Version, text, current.Author, current.Note})
}

func (b *backup) applications() error {
	var all server.ListApplications
	err := b.get(applicationsPath, nil, &all)
	for i := range all.Applications {
		if err == nil {
			err = b.add(kindApplication, all.Applications[i])
		}
	}
	return err
}

// report prints what is in the backup, and what is not. To standard output goes only the backup.
func (b *backup) report(name string, toOut bool) error {
	for _, what := range b.lacks {
		b.warn("not in the backup: %s", clean(what))
	}
	var err error
	switch {
	case b.json && !toOut:
		err = b.printJSON(map[string]any{"at_ms": b.atMS, "records": b.counts, "lacks": b.lacks})
	case toOut:
		b.warn("%s", b.summary())
	default:
		err = b.println("%s: %s", name, b.summary())
	}
	if b.bad {
		err = errors.New("the backup lacks something that is in force")
	}
	return err
}

// summary names how many of each kind there are.
func (b *backup) summary() string {
	var parts []string
	for _, k := range summaryKinds {
		if n := b.counts[k.kind]; n == 1 {
			parts = append(parts, "1 "+k.one)
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k.many))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "there is nothing to back up")
}

// summaryKinds are the kinds as reports name them.
var summaryKinds = []struct{ kind, one, many string }{
	{kindPools, "configuration of pools", "configurations of pools"},
	{kindApplication, "application", "applications"},
	{kindList, "list", "lists"},
	{kindListVersion, "version of a list", "versions of lists"},
	{kindIDs, "id", "ids"},
	{kindChain, "version of a chain", "versions of chains"},
	{kindShadow, "shadow", "shadows"},
	{kindDocument, "version of a document", "versions of documents"},
	{kindInstance, "persistent instance", "persistent instances"},
	{kindOverride, "override", "overrides"},
	{kindCleanup, "cleanup setting", "cleanup settings"},
	{kindJob, "job", "jobs"},
	{kindSchedule, "schedule", "schedules"},
	{kindToken, "name of a token", "names of tokens"},
}
