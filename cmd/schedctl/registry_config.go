package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry/server"
)

const documentsPath = registryPath + "/config"

type registryConfigCmd struct {
	Ls       documentLsCmd       `cmd:"" help:"List documents."`
	Get      documentGetCmd      `cmd:"" help:"Print a document."`
	Set      documentSetCmd      `cmd:"" help:"Write a document as its newest version."`
	History  documentHistoryCmd  `cmd:"" help:"List the versions of a document."`
	Diff     documentDiffCmd     `cmd:"" help:"Compare two versions of a document."`
	Rollback documentRollbackCmd `cmd:"" help:"Write an old version of a document as the newest."`
	Rm       documentRmCmd       `cmd:"" help:"Delete a document with its history."`
	Watch    documentWatchCmd    `cmd:"" help:"Print each new version of a document."`
}

// oneDocument names a document.
type oneDocument struct {
	Name string `arg:"" help:"Name of the document."`
}

func (c *oneDocument) path() string { return documentsPath + "/" + escaped(c.Name) }

// seen returns the version from which a change is made: the one that the user gave or, without it,
// the current one.
func (c *oneDocument) seen(a *app, given *int64) (int64, error) {
	if given != nil {
		return *given, nil
	}
	var d server.ConfigDocument
	err := a.call(http.MethodGet, c.path(), nil, nil, &d)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		return 0, nil
	}
	return d.Version, err
}

// made prints which version a change has made.
func (c *oneDocument) made(a *app, method, below string, request any) error {
	var changed server.ConfigDocumentChanged
	if err := a.call(method, c.path()+below, nil, request, &changed); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(changed)
	}
	return a.println("%s is at version %d", c.Name, changed.Version)
}

type documentLsCmd struct{}

// Run lists documents by their names.
func (documentLsCmd) Run(a *app) error {
	all := []server.ConfigDocumentHead{}
	for query := (url.Values{"limit": {"1000"}}); ; {
		var page server.ConfigDocumentPage
		if err := a.call(http.MethodGet, documentsPath, query, nil, &page); err != nil {
			return err
		}
		all = append(all, page.Documents...)
		if page.After == "" {
			break
		}
		query.Set("after", page.After)
	}
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"NAME", "VERSION", "AT"}}
	for _, d := range all {
		rows = append(rows, []string{d.Name, fmt.Sprint(d.Version), clock(d.AtMS)})
	}
	return table(a.out, rows)
}

type documentGetCmd struct {
	oneDocument
	Version int64 `placeholder:"N" help:"A version of the history (default: the newest)."`
}

// Run prints the content as it is, or everything that is known as JSON.
func (c *documentGetCmd) Run(a *app) error {
	var d server.ConfigDocument
	if err := a.call(http.MethodGet, c.path(), versionQuery("version", c.Version), nil, &d); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(d)
	}
	_, err := io.WriteString(a.out, d.Content)
	return err
}

// versionQuery asks for a version; 0 is left out.
func versionQuery(name string, version int64) url.Values {
	if version == 0 {
		return url.Values{}
	}
	return url.Values{name: {strconv.FormatInt(version, 10)}}
}

// documentChange holds what changes have in common.
type documentChange struct {
	Seen   *int64 `placeholder:"N" help:"The version that the change was made from, 0 for a new document; another one is a conflict (default: the current one)."`
	Note   string `placeholder:"TEXT" help:"Why, for the history."`
	Author string `env:"USER" placeholder:"NAME" help:"Who, for the history (default: the user of this shell)."`
}

type documentSetCmd struct {
	oneDocument
	File string `arg:"" help:"File with the content; - reads standard input."`
	documentChange
}

// Run writes a version.
func (c *documentSetCmd) Run(a *app) error {
	content, _, err := a.readInput(c.File, "the document")
	if err != nil {
		return err
	}
	seen, err := c.seen(a, c.Seen)
	if err != nil {
		return err
	}
	text := string(content)
	return c.made(
		a, http.MethodPut, "", server.ConfigDocumentUpdate{Version: &seen, Content: &text, Author: c.Author, Note: c.Note},
	)
}

type documentHistoryCmd struct{ oneDocument }

// Run lists versions.
func (c *documentHistoryCmd) Run(a *app) error {
	var history server.ConfigDocumentHistory
	if err := a.call(http.MethodGet, c.path()+"/history", nil, nil, &history); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(history.Versions)
	}
	rows := [][]string{{"VERSION", "AT", "AUTHOR", "BYTES", "RESTORES", "NOTE"}}
	for _, v := range history.Versions {
		restores := ""
		if v.Restores > 0 {
			restores = fmt.Sprint(v.Restores)
		}
		rows = append(
			rows,
			[]string{fmt.Sprint(v.Version), clock(v.AtMS), dash(v.Author), fmt.Sprint(v.Bytes), dash(restores), dash(v.Note)},
		)
	}
	return table(a.out, rows)
}

type documentDiffCmd struct {
	oneDocument
	From int64 `placeholder:"N" help:"A version (default: the one before the other)."`
	To   int64 `placeholder:"N" help:"The other version (default: the newest)."`
}

// Run prints what differs.
func (c *documentDiffCmd) Run(a *app) error {
	query := versionQuery("from", c.From)
	if c.To != 0 {
		query.Set("to", strconv.FormatInt(c.To, 10))
	}
	var diff server.ConfigDocumentDiff
	if err := a.call(http.MethodGet, c.path()+"/diff", query, nil, &diff); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(diff)
	}
	if diff.Diff == "" {
		return a.println("versions %d and %d are equal", diff.From, diff.To)
	}
	_, err := fmt.Fprintf(a.out, "--- %s version %d\n+++ %s version %d\n%s", c.Name, diff.From, c.Name, diff.To, diff.Diff)
	return err
}

type documentRollbackCmd struct {
	oneDocument
	Restore int64 `arg:"" name:"version" help:"Version of the history whose content becomes the newest."`
	documentChange
}

// Run goes back.
func (c *documentRollbackCmd) Run(a *app) error {
	seen, err := c.seen(a, c.Seen)
	if err != nil {
		return err
	}
	return c.made(
		a, http.MethodPost, "/rollback",
		server.ConfigDocumentRollback{Version: &seen, Restore: c.Restore, Author: c.Author, Note: c.Note},
	)
}

type documentRmCmd struct {
	oneDocument
	Seen *int64 `placeholder:"N" help:"The version to delete; another one is a conflict (default: the current one)."`
}

// Run deletes a document.
func (c *documentRmCmd) Run(a *app) error {
	seen, err := c.seen(a, c.Seen)
	if err != nil {
		return err
	}
	if err := a.call(
		http.MethodDelete, c.path(), url.Values{"version": {strconv.FormatInt(max(seen, 1), 10)}}, nil, nil,
	); err != nil {
		return err
	}
	return a.println("%s is deleted", c.Name)
}

type documentWatchCmd struct{ oneDocument }

// Run prints a line of JSON for the document as it is, and for each change, until it is
// interrupted.
func (c *documentWatchCmd) Run(a *app) error {
	query, last := url.Values{}, int64(-1)
	for a.ctx.Err() == nil {
		var d server.ConfigDocument
		err := a.api.call(a.ctx, http.MethodGet, "/v1/documents/"+escaped(c.Name), query, nil, watchWait, &d)
		switch {
		case a.ctx.Err() != nil:
			return nil // Ctrl-C is the usual end
		case freeslot.CodeOf(err) == freeslot.CodeNotFound:
			d = server.ConfigDocument{Name: c.Name}
		case err != nil:
			return explain(err)
		}
		query = url.Values{
			"version": {strconv.FormatInt(d.Version, 10)}, "wait_ms": {strconv.FormatInt(watchWait.Milliseconds(), 10)},
		}
		if d.Version == last {
			continue
		}
		last = d.Version
		if err := json.NewEncoder(a.out).Encode(d); err != nil {
			return err
		}
	}
	return nil
}
