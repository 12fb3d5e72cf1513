package main

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/process/output"
)

type listsExportCmd struct {
	oneList
	File    string `arg:"" default:"-" help:"A regular file is replaced once it is whole; compressed where the name ends with .gz (default: standard output)."`
	Version int64  `placeholder:"N" help:"Number of the version (default: the one that serves)."`
	Format  string `enum:",csv,txt" default:"" placeholder:"FORMAT" help:"csv (id,expiry) or txt, without expiries (default: by the name of the file, else csv)."`
	Bare    bool   `help:"Without edits: what the version was built of."`
}

// Run exports a list, and checks that all of it came.
func (c *listsExportCmd) Run(a *app) error {
	if c.File == "-" || a.isOut(c.File) {
		out := bufio.NewWriter(a.out)
		_, err := c.write(a, out)
		return cmp.Or(err, out.Flush())
	}
	file, err := output.Create(c.File)
	if err != nil {
		return usage("%w", err)
	}
	defer file.Discard()
	of, err := c.pack(a, file)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(of)
	}
	text := plural.Of(of.Count, "id", "ids") + fmt.Sprintf(" of version %d", of.Version)
	if !c.Bare {
		text += fmt.Sprintf(" with edits up to revision %d", of.Revision)
	}
	return a.println("%s: %s", c.File, text)
}

// isOut reports whether a name, such as /dev/stdout, means standard output: only the export may go
// there.
func (a *app) isOut(name string) bool {
	out, ok := file(a.out).(*os.File)
	if !ok {
		return false
	}
	is, err := out.Stat()
	named, failed := os.Stat(name)
	return err == nil && failed == nil && os.SameFile(is, named)
}

// pack writes the export, compressed if the name of the file says so.
func (c *listsExportCmd) pack(a *app, to io.Writer) (exported, error) {
	if !strings.HasSuffix(c.File, ".gz") {
		return c.write(a, to)
	}
	packed := gzip.NewWriter(to)
	of, err := c.write(a, packed)
	return of, cmp.Or(err, packed.Close())
}

// exported tells what an export contains.
type exported struct {
	Version  int64  `json:"version"`
	Revision int64  `json:"revision"`
	AtMS     int64  `json:"at_ms"`
	Count    int64  `json:"count"`
	SHA256   string `json:"sha256"`
}

func (c *listsExportCmd) write(a *app, out io.Writer) (of exported, err error) {
	format := cmp.Or(c.Format, formatOf(c.File))
	query := url.Values{"format": {format}, "edits": {strconv.FormatBool(!c.Bare)}}
	if c.Version != 0 {
		query.Set("version", strconv.FormatInt(c.Version, 10))
	}
	sum, lines := sha256.New(), &lineCounter{}
	header, trailer, err := a.api.stream(a.ctx, c.path()+"/export", query, io.MultiWriter(out, sum, lines))
	if err != nil {
		return of, explain(err)
	}
	of.SHA256 = trailer.Get(server.ExportSHA256)
	for _, number := range []struct {
		text string
		into *int64
	}{
		{header.Get(server.ExportVersion), &of.Version},
		{header.Get(server.ExportRevision), &of.Revision},
		{header.Get(server.ExportAt), &of.AtMS},
		{trailer.Get(server.ExportCount), &of.Count},
	} {
		if *number.into, err = strconv.ParseInt(number.text, 10, 64); err != nil {
			return of, errors.New("the export does not say what it is, or was cut")
		}
	}
	want := of.Count + int64(strings.Count(version.Header(version.Format(format)), "\n"))
	if is := hex.EncodeToString(sum.Sum(nil)); lines.n != want || is != of.SHA256 {
		return of, fmt.Errorf(
			"the export has %s and sum %s, expected %d and %s", plural.Of(lines.n, "line", "lines"), is, want, of.SHA256,
		)
	}
	return of, nil
}

// formatOf returns the format of a file by its name.
func formatOf(name string) string {
	if strings.HasSuffix(strings.TrimSuffix(name, ".gz"), ".txt") {
		return string(version.TXT)
	}
	return string(version.CSV)
}

type lineCounter struct{ n int64 }

func (l *lineCounter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			l.n++
		}
	}
	return len(p), nil
}

type listsDiffCmd struct {
	oneList
	Version  int64 `arg:"" help:"Number of the version."`
	With     int64 `arg:"" optional:"" help:"The version to compare it with (default: the one that serves)."`
	Examples int   `default:"10" placeholder:"N" help:"How many of each kind are named, up to 10000 (default ${default})."`
}

// Run compares versions.
func (c *listsDiffCmd) Run(a *app) error {
	query := url.Values{"examples": {strconv.Itoa(c.Examples)}}
	if c.With != 0 {
		query.Set("with", strconv.FormatInt(c.With, 10))
	}
	var d manage.ListDiff
	if err := a.callFor(manage.VerifyTimeout, http.MethodGet, c.version(c.Version)+"/diff", query, nil, &d); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(d)
	}
	if err := a.println("version %d against version %d: %d added, %d removed, %d with another expiry, %d the same",
		d.Version, d.With, d.Added.Count, d.Removed.Count, d.Changed.Count, d.Same); err != nil {
		return err
	}
	rows := [][]string{{"", "ID", "EXPIRES", "BEFORE"}}
	for _, e := range d.Added.Examples {
		rows = append(rows, []string{"+", e.ID, clock(e.ExpiresMS), ""})
	}
	for _, e := range d.Removed.Examples {
		rows = append(rows, []string{"-", e.ID, "", clock(e.ExpiresMS)})
	}
	for _, e := range d.Changed.Examples {
		rows = append(rows, []string{"~", e.ID, clock(e.ExpiresMS), clock(e.BeforeMS)})
	}
	if len(rows) > 1 {
		if err := table(a.out, rows); err != nil {
			return err
		}
	}
	switch {
	case d.Trimmed:
		return a.println("which edits a switch takes back is not known: the log does not have all of them")
	case d.Dropped.Count == 0:
		return nil
	}
	if err := a.println("a switch takes back %s:", plural.Of(d.Dropped.Count, "edited id", "edited ids")); err != nil {
		return err
	}
	rows = [][]string{{"EDIT", "ID", "EXPIRES"}}
	for _, e := range d.Dropped.Examples {
		what := "add"
		if e.Remove {
			what = "remove"
		}
		rows = append(rows, []string{what, e.ID, clock(e.ExpiresMS)})
	}
	return table(a.out, rows)
}

func (c *oneList) version(n int64) string { return fmt.Sprintf("%s/versions/%d", c.path(), n) }

type listsSampleCmd struct {
	oneList
	Version int64 `arg:"" help:"Number of the version."`
	Count   int   `default:"20" placeholder:"N" help:"How many, up to 1000 (default ${default})."`
}

// Run shows some of a version.
func (c *listsSampleCmd) Run(a *app) error {
	var out server.ListSample
	if err := a.call(
		http.MethodGet, c.version(c.Version)+"/sample", url.Values{"count": {strconv.Itoa(c.Count)}}, nil, &out,
	); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out.Entries)
	}
	return table(a.out, entryRows(out.Entries))
}

func entryRows(entries []namelist.Entry) [][]string {
	rows := [][]string{{"ID", "EXPIRES"}}
	for _, e := range entries {
		rows = append(rows, []string{e.ID, clock(e.ExpiresMS)})
	}
	return rows
}

type listsRejectsCmd struct {
	oneList
	Version int64  `arg:"" optional:"" help:"Number of the version."`
	Upload  string `placeholder:"ID" help:"Lines of this upload instead. It need not have become a version."`
}

// Run lists rejected lines.
func (c *listsRejectsCmd) Run(a *app) error {
	path := c.version(c.Version) + "/rejects"
	switch {
	case (c.Upload == "") == (c.Version == 0):
		return usage("name a version or --upload")
	case c.Upload != "":
		path = uploadPath(c.Upload) + "/rejects"
	}
	all := manage.Rejects{Rejects: []version.Reject{}}
	for query := (url.Values{"limit": {"10000"}}); ; {
		var page manage.Rejects
		if err := a.call(http.MethodGet, path, query, nil, &page); err != nil {
			return err
		}
		all.Rejected, all.Rejects = page.Rejected, append(all.Rejects, page.Rejects...)
		if page.After == 0 {
			break
		}
		query.Set("after", strconv.FormatInt(page.After, 10))
	}
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"LINE", "WHY"}}
	for _, r := range all.Rejects {
		rows = append(rows, []string{strconv.FormatInt(r.Line, 10), r.Why})
	}
	if err := table(a.out, rows); err != nil || all.Rejected == int64(len(all.Rejects)) {
		return err
	}
	return a.println("%d of %d are kept", len(all.Rejects), all.Rejected)
}
