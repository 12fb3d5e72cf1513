package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/plural"
)

const chainsPath = "/v1/chains"

type listsChainCmd struct {
	Ls       chainLsCmd       `cmd:"" help:"List the chains."`
	Show     chainShowCmd     `cmd:"" help:"Print the document of a chain."`
	Apply    chainApplyCmd    `cmd:"" help:"Write a document as the newest version, which serves at once."`
	Versions chainVersionsCmd `cmd:"" help:"List the versions of a chain."`
	Clients  chainClientsCmd  `cmd:"" help:"List the live clients of a chain, and which version each decides by."`
	Diff     chainDiffCmd     `cmd:"" help:"Compare two versions of a chain."`
	Rollback chainRollbackCmd `cmd:"" help:"Write an old version of a chain as the newest."`
	Evaluate chainEvaluateCmd `cmd:"" help:"Ask what a chain decides for subjects."`
	Shadow   chainShadowCmd   `cmd:"" help:"Evaluate a document beside the version that serves. Differences are counted, and decide nothing."`
	Stats    chainStatsCmd    `cmd:"" help:"Show what a chain has decided, by rule, and what its shadow has decided beside."`
	Rm       chainRmCmd       `cmd:"" help:"Delete a chain with its history. It decides unknown from then on."`
}

// oneChain names a chain.
type oneChain struct {
	Chain string `arg:"" help:"Name of the chain."`
}

func (c *oneChain) path() string { return chainsPath + "/" + escaped(c.Chain) }

// read returns the chain; its version is 0 if there is none.
func (c *oneChain) read(a *app) (d namelist.ChainDocument, err error) {
	err = a.call(http.MethodGet, c.path(), nil, nil, &d)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		return namelist.ChainDocument{}, nil
	}
	return d, err
}

// seen returns the version from which a change is made: the one that the user gave or, without it,
// the current one.
func (c *oneChain) seen(a *app, given *int64) (*int64, error) {
	if given != nil {
		return given, nil
	}
	d, err := c.read(a)
	return &d.Version, err
}

// printDiff prints what a document changes in a version, or that the version is not kept any more.
func (c *oneChain) printDiff(a *app, version int64, document []byte) error {
	var v server.ChainVersionShown
	err := a.call(http.MethodGet, fmt.Sprintf("%s/versions/%d", c.path(), version), nil, nil, &v)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		return a.println("version %d is not kept any more", version)
	}
	if err != nil {
		return err
	}
	before, _, err := chain.Parse(v.Document, nil)
	if err != nil {
		return err
	}
	after, _, err := chain.Parse(document, nil)
	if err != nil {
		return err
	}
	return printChanges(a, chain.Diff(before, after))
}

func printChanges[C fmt.Stringer](a *app, changes []C) error {
	for _, change := range changes {
		if err := a.println("%s", change); err != nil {
			return err
		}
	}
	return nil
}

// made prints which version a change has made.
func (c *oneChain) made(a *app, method, below string, request any, what string) error {
	var changed server.ChainChanged
	if err := a.call(method, c.path()+below, nil, request, &changed); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(changed)
	}
	return a.println("chain %s %s version %d", c.Chain, what, changed.Version)
}

// chainChange holds what changes have in common.
type chainChange struct {
	Seen *int64 `placeholder:"N" help:"The version that the change was made from, 0 for a new chain; another one is a conflict (default: the current one)."`
	whyFlags
}

type chainLsCmd struct{}

// Run lists chains by their names.
func (chainLsCmd) Run(a *app) error {
	all := []server.ChainHead{}
	for query := (url.Values{"limit": {"1000"}}); ; {
		var page server.ChainPage
		if err := a.call(http.MethodGet, chainsPath, query, nil, &page); err != nil {
			return err
		}
		all = append(all, page.Chains...)
		if page.After == "" {
			break
		}
		query.Set("after", page.After)
	}
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"CHAIN", "VERSION", "SHADOW", "AT", "BY", "NOTE"}}
	for i := range all {
		h := &all[i]
		shadow := "-"
		if h.Shadowed {
			shadow = "yes"
		}
		rows = append(rows, []string{h.Name, fmt.Sprint(h.Version), shadow, clock(h.AtMS), dash(h.Author), dash(h.Note)})
	}
	return table(a.out, rows)
}

type chainShowCmd struct {
	oneChain
	Version int64 `placeholder:"N" help:"A version that is kept (default: the one that serves)."`
	Shadow  bool  `help:"The shadow and not the version that serves."`
}

// Run prints the document, as apply reads it, or everything that is known as JSON.
func (c *chainShowCmd) Run(a *app) error {
	var shown any
	var document json.RawMessage
	if c.Version > 0 {
		var v server.ChainVersionShown
		if err := a.call(http.MethodGet, fmt.Sprintf("%s/versions/%d", c.path(), c.Version), nil, nil, &v); err != nil {
			return err
		}
		shown, document = v, v.Document
	} else {
		var d namelist.ChainDocument
		if err := a.call(http.MethodGet, c.path(), nil, nil, &d); err != nil {
			return err
		}
		shown, document = d, d.Document
		if c.Shadow {
			if d.Shadow == nil {
				return fmt.Errorf("chain %s has no shadow", c.Chain)
			}
			document = d.Shadow.Document
		}
	}
	if a.json {
		return a.printJSON(shown)
	}
	return a.printJSON(document)
}

type chainApplyCmd struct {
	oneChain
	File   string `arg:"" help:"File with the document, JSON; - reads standard input."`
	DryRun string `placeholder:"SAMPLE" help:"Change nothing, and say how many subjects of this file get another outcome. A line is a key, or JSON with key and attributes."`
	chainChange
}

// Run writes a version.
func (c *chainApplyCmd) Run(a *app) error {
	document, err := a.readDocument(c.File)
	if err != nil {
		return err
	}
	if c.DryRun != "" {
		return c.compare(a, document)
	}
	seen, err := c.seen(a, c.Seen)
	if err != nil {
		return err
	}
	update := server.ChainUpdate{Version: seen, Document: document, ByWhom: c.by()}
	return c.made(a, http.MethodPut, "", update, "serves")
}

// readDocument reads a file that must be JSON: otherwise the request would be none.
func (a *app) readDocument(file string) (json.RawMessage, error) {
	document, name, err := a.readInput(file, "the document")
	if err == nil {
		err = freeslot.DecodeStrict(name, document, new(map[string]json.RawMessage))
	}
	return document, err
}

type chainVersionsCmd struct{ oneChain }

// Run lists versions.
func (c *chainVersionsCmd) Run(a *app) error {
	var out server.ChainVersions
	if err := a.call(http.MethodGet, c.path()+"/versions", nil, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out.Versions)
	}
	rows := [][]string{{"VERSION", "AT", "BY", "BYTES", "RESTORES", "NOTE"}}
	for _, v := range out.Versions {
		restores := ""
		if v.Restores > 0 {
			restores = fmt.Sprint(v.Restores)
		}
		rows = append(rows, []string{
			fmt.Sprint(v.Version), clock(v.AtMS), dash(v.Author), fmt.Sprint(v.Bytes), dash(restores), dash(v.Note),
		})
	}
	return table(a.out, rows)
}

type chainClientsCmd struct{ oneChain }

// Run lists live clients.
func (c *chainClientsCmd) Run(a *app) error { return a.printClients(c.path()) }

type chainDiffCmd struct {
	oneChain
	From int64 `placeholder:"N" help:"A version (default: the one before the other)."`
	To   int64 `placeholder:"N" help:"The other version (default: the one that serves)."`
}

// Run prints what differs.
func (c *chainDiffCmd) Run(a *app) error {
	query := versionQuery("from", c.From)
	if c.To != 0 {
		query.Set("to", strconv.FormatInt(c.To, 10))
	}
	var diff server.ChainDiff
	if err := a.call(http.MethodGet, c.path()+"/diff", query, nil, &diff); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(diff)
	}
	if len(diff.Changes) == 0 {
		return a.println("versions %d and %d are equal", diff.From, diff.To)
	}
	if err := a.println("version %d against version %d: %s", diff.To, diff.From, plural.Of(
		len(diff.Changes), "field differs", "fields differ")); err != nil {
		return err
	}
	return printChanges(a, diff.Changes)
}

type chainRollbackCmd struct {
	oneChain
	Restore int64 `arg:"" name:"version" help:"The version whose document becomes the newest."`
	chainChange
}

// Run goes back.
func (c *chainRollbackCmd) Run(a *app) error {
	seen, err := c.seen(a, c.Seen)
	if err != nil {
		return err
	}
	rollback := server.ChainRollback{Version: seen, Restore: c.Restore, ByWhom: c.by()}
	return c.made(a, http.MethodPost, "/rollback", rollback, "serves")
}

type chainShadowCmd struct {
	oneChain
	File string `arg:"" optional:"" help:"File with the document, JSON; - reads standard input. Without a file, the shadow ends."`
	chainChange
}

// Run sets or ends a shadow.
func (c *chainShadowCmd) Run(a *app) error {
	seen, err := c.seen(a, c.Seen)
	if err != nil {
		return err
	}
	update := server.ChainUpdate{Version: seen, ByWhom: c.by()}
	what := "has no shadow beside"
	if c.File != "" {
		if update.Document, err = a.readDocument(c.File); err != nil {
			return err
		}
		what = "has a shadow beside"
	}
	return c.made(a, http.MethodPost, "/shadow", update, what)
}

type chainRmCmd struct {
	oneChain
	Seen *int64 `placeholder:"N" help:"The version to delete; another one is a conflict (default: the current one)."`
	Note string `help:"Why."`
}

// Run deletes a chain.
func (c *chainRmCmd) Run(a *app) error {
	seen, err := c.seen(a, c.Seen)
	if err != nil {
		return err
	}
	query := url.Values{"version": {strconv.FormatInt(max(*seen, 1), 10)}}
	if c.Note != "" {
		query.Set("note", c.Note)
	}
	return a.done(a.call(http.MethodDelete, c.path(), query, nil, nil),
		"chain %s is deleted: it decides unknown from now on", c.Chain)
}
