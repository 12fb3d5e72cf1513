package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/plural"
)

const listsPath = "/v1/lists"

type listsCmd struct {
	Ls           listsLsCmd           `cmd:"" help:"List the lists."`
	Show         listsShowCmd         `cmd:"" help:"Show a list: its state, versions, and what runs."`
	Apply        listsApplyCmd        `cmd:"" help:"Create a list, or change its settings."`
	Import       listsImportCmd       `cmd:"" help:"Upload a file of ids and build a version of it. With --upload it goes on after an interruption."`
	Uploads      listsUploadsCmd      `cmd:"" help:"List, show and forget uploads."`
	Rejects      listsRejectsCmd      `cmd:"" help:"List the lines that an import refused."`
	Diff         listsDiffCmd         `cmd:"" help:"Compare a version with another one."`
	Sample       listsSampleCmd       `cmd:"" help:"Show some entries of a version."`
	Export       listsExportCmd       `cmd:"" help:"Write the ids of a list, as it answers now, to a file."`
	Switch       listsSwitchCmd       `cmd:"" help:"Switch to a version; to an older one it is a rollback."`
	Rollback     listsRollbackCmd     `cmd:"" help:"Switch to an older version."`
	Accept       listsAcceptCmd       `cmd:"" help:"Accept a version that is in doubt, so that it can be switched to."`
	Add          listsAddCmd          `cmd:"" help:"Add ids."`
	Remove       listsRemoveCmd       `cmd:"" help:"Remove ids."`
	Session      listsSessionCmd      `cmd:"" help:"Stage edits, and commit them at one revision."`
	Query        listsQueryCmd        `cmd:"" help:"Ask whether ids are in a list."`
	Count        listsCountCmd        `cmd:"" help:"Count the ids of a list. Expired ones count until the next version is built."`
	Clients      listsClientsCmd      `cmd:"" help:"List the live clients of a list, and which version each answers from."`
	Stats        listsStatsCmd        `cmd:"" help:"Show how often a list was asked, by application and over time, and what it answered."`
	Verify       listsVerifyCmd       `cmd:"" help:"Read a version back from Redis and compare it with its seals and digest."`
	Expand       listsExpandCmd       `cmd:"" help:"Build a list anew with as many segments as it needs, and switch to that."`
	Move         listsMoveCmd         `cmd:"" help:"Build a list anew on another server, and switch to that."`
	Freeze       listsFreezeCmd       `cmd:"" help:"Refuse all changes of a list. It goes on to serve."`
	Unfreeze     listsUnfreezeCmd     `cmd:"" help:"Allow changes again."`
	Cancel       listsCancelCmd       `cmd:"" help:"End what runs on a list. The list is as before."`
	Source       listsSourceCmd       `cmd:"" help:"Where the ids of lists come from: sources and their runs."`
	Chain        listsChainCmd        `cmd:"" help:"Decide by rules over lists: chains, their versions and shadows."`
	Requests     listsRequestsCmd     `cmd:"" help:"List, show and decide changes that wait for approval."`
	Applications listsApplicationsCmd `cmd:"" help:"List and register applications, which ask and own lists."`
	Grant        listsGrantCmd        `cmd:"" help:"Say who may do what with a list."`
	Own          listsOwnCmd          `cmd:"" help:"Make an application the owner of a list."`
	GC           listsGCCmd           `cmd:"" name:"gc" help:"Remove keys that killed replicas have left on list servers."`
	Rm           listsRmCmd           `cmd:"" help:"Delete a list. Clients answer unknown from then on."`
}

// oneList names a list.
type oneList struct {
	List string `arg:"" help:"Name of the list."`
}

func (c *oneList) path() string { return listsPath + "/" + escaped(c.List) }

// orApply adds advice to the answer that there is no such list: how to make one.
func (c *oneList) orApply(err error) error {
	if e, ok := errors.AsType[*freeslot.Error](err); ok && e.Code == freeslot.CodeNotFound &&
		strings.HasSuffix(e.Message, "there is no list "+c.List) {
		return fmt.Errorf("%w\n  `schedctl lists apply %s` creates it", err, c.List)
	}
	return err
}

// whyFlags tell who asks, and why.
type whyFlags struct {
	Author string `help:"Who; the tenant of the token is put before it."`
	Note   string `help:"Why."`
}

func (w whyFlags) by() server.ByWhom { return server.ByWhom{Author: w.Author, Note: w.Note} }

type listsLsCmd struct{}

// Run lists lists by their names.
func (c *listsLsCmd) Run(a *app) error {
	all := []server.NameList{}
	for query := (url.Values{"limit": {"1000"}}); ; {
		var page server.NameListPage
		if err := a.call(http.MethodGet, listsPath, query, nil, &page); err != nil {
			return err
		}
		all = append(all, page.Lists...)
		if page.After == "" {
			break
		}
		query.Set("after", page.After)
	}
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"LIST", "STATE", "VERSION", "IDS", "EDITS", "REVISION", "EXPIRES", "OPERATION"}}
	for i := range all {
		l := &all[i]
		version, count := "-", "-"
		if l.Serving != nil {
			version, count = fmt.Sprint(l.Serving.Number), fmt.Sprint(l.Serving.Count)
		}
		rows = append(
			rows,
			[]string{
				l.Name, string(l.State), version, count, fmt.Sprint(l.Edits), fmt.Sprint(l.Revision), endText(l.ExpiresMS),
				operationText(l.Operation),
			},
		)
	}
	return table(a.out, rows)
}

// endText returns the time at which the whole list ends, or ended. After that time no id counts.
func endText(ms int64) string {
	if ms != 0 && ms <= time.Now().UnixMilli() {
		return "ended " + clock(ms)
	}
	return clock(ms)
}

func operationText(op *server.ListOperation) string {
	if op == nil {
		return "-"
	}
	text := fmt.Sprintf("%s by %s since %s", op.Kind, op.Replica, clock(op.SinceMS))
	if op.Why != "" {
		text += " (" + op.Why + ")"
	}
	return text
}

type listsShowCmd struct{ oneList }

// Run shows a list and its versions.
func (c *listsShowCmd) Run(a *app) error {
	var l server.NameList
	if err := a.call(http.MethodGet, c.path(), nil, nil, &l); err != nil {
		return err
	}
	var v server.ListVersions
	if err := a.call(http.MethodGet, c.path()+"/versions", nil, nil, &v); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			server.NameList
			server.ListVersions
		}{l, v})
	}
	err := table(a.out, [][]string{
		{"LIST", "STATE", "REVISION", "EDITS", "FORM", "FILTER", "SERVER", "OWNER", "EXPIRES", "OPERATION"},
		{
			l.Name, string(l.State), fmt.Sprint(l.Revision), fmt.Sprint(l.Edits), l.Form, l.Filter, dash(l.Server),
			dash(l.Application), endText(l.ExpiresMS), operationText(l.Operation),
		},
	})
	if err != nil || len(v.Versions) == 0 {
		return err
	}
	if err := a.println(""); err != nil {
		return err
	}
	rows := [][]string{{"VERSION", "SERVES", "IDS", "BYTES", "SEGMENTS", "SERVER", "READY", "BY", "NOTE"}}
	for i := range v.Versions {
		v := &v.Versions[i]
		serves, note := "-", v.Note
		if l.Serving != nil && l.Serving.Number == v.Number {
			serves = "yes"
		}
		switch {
		case v.Damaged != "":
			note = "damaged: " + v.Damaged
		case v.Doubt != "":
			note = "accept it first: " + v.Doubt
		}
		rows = append(
			rows,
			[]string{
				fmt.Sprint(v.Number), serves, fmt.Sprint(v.Count), fmt.Sprint(v.Bytes), fmt.Sprint(v.Segments), dash(v.Server),
				clock(v.AtMS), dash(v.Author), dash(note),
			},
		)
	}
	return table(a.out, rows)
}

type listsApplyCmd struct {
	oneList
	Form        string        `placeholder:"FORM" help:"exact, lower or integer; fixed at creation (default exact)."`
	On          string        `placeholder:"NAME" help:"The list server; only a move changes it (default: the scheduler's Redis)."`
	Expected    int64         `placeholder:"N" help:"How many ids the list is expected to have; reserves what they need."`
	Filter      string        `placeholder:"KIND" help:"fuse, bloom or none, for the next versions (default fuse)."`
	Expires     time.Duration `placeholder:"DURATION" help:"How long the whole list lasts from now on, such as 30d (default: for ever)."`
	OnExpired   string        `placeholder:"ANSWER" help:"What an expired list answers: unknown or no (default unknown)."`
	Whole       bool          `help:"Clients hold all ids; for lists of up to 100000."`
	Application string        `placeholder:"NAME" help:"The registered application that owns a new list."`
}

// Run applies a list.
func (c *listsApplyCmd) Run(a *app) error {
	body := server.ListSpec{
		Form: c.Form, Server: c.On, ExpectedIDs: c.Expected, Filter: c.Filter, ExpiresMS: expiry(c.Expires),
		OnExpired: c.OnExpired, Whole: c.Whole, Application: c.Application,
	}
	var l server.NameList
	if err := a.call(http.MethodPut, c.path(), nil, body, &l); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(l)
	}
	text := fmt.Sprintf("list %s is %s, revision %d", l.Name, l.State, l.Revision)
	if l.Planned != nil {
		text += fmt.Sprintf(
			"; %s about %d bytes in %s", plural.Of(l.ExpectedIDs, "id needs", "ids need"), l.Planned.Bytes,
			plural.Of(l.Planned.Segments, "segment", "segments"),
		)
	}
	return a.println("%s", text)
}

type listsSwitchCmd struct {
	oneList
	Version int64  `arg:"" help:"Number of the version."`
	Serving *int64 `placeholder:"N" help:"The version that you saw serving, 0 for none: another one is a conflict."`
	switchFlags
}

// switchFlags are the flags of a switch and a rollback.
type switchFlags struct {
	Now     bool          `help:"Do not wait until all live clients have loaded it."`
	Wait    bool          `help:"Return when every live client answers from it, or name those that do not after --wait-for."`
	WaitFor time.Duration `default:"1m" least:"0s" placeholder:"TIME" help:"How long --wait waits (default ${default})."`
	whyFlags
}

// Run switches, and waits until it is done.
func (c *listsSwitchCmd) Run(a *app) error {
	var out server.ListStarted
	body := server.ListSwitchRequest{Version: c.Version, Serving: c.Serving, Now: c.Now, ByWhom: c.by()}
	if err := a.call(http.MethodPost, c.path()+"/switch", nil, body, &out); err != nil {
		return err
	}
	l, err := a.awaitList(c.path(), out.Operation.ID)
	if err != nil {
		return err
	}
	if l.Serving == nil || l.Serving.Number != c.Version {
		return fmt.Errorf(
			"list %s did not switch to version %d: `schedctl lists show %s` and the replica's log say why", c.List, c.Version,
			c.List,
		)
	}
	if c.Wait {
		if err := c.awaitClients(a); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(l)
	}
	return a.println("list %s serves version %d, revision %d", l.Name, l.Serving.Number, l.Revision)
}

// awaitClients waits until every live client serves the version.
func (c *listsSwitchCmd) awaitClients(a *app) error {
	for deadline := time.Now().Add(c.WaitFor); ; {
		var out server.ListClients
		if err := a.call(http.MethodGet, c.path()+"/clients", nil, nil, &out); err != nil {
			return err
		}
		var behind []string
		for _, client := range out.Clients {
			if client.Serves != c.Version {
				behind = append(behind, fmt.Sprintf("%s (version %d)", client.ID, client.Serves))
			}
		}
		if len(behind) == 0 {
			return nil
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf(
				"%s from version %d yet: %s", plural.Of(len(behind), "client does not answer", "clients do not answer"), c.Version,
				list(behind),
			)
		}
		if err := a.pause(); err != nil {
			return err
		}
	}
}

// listPause is the pause between two questions about an operation's progress.
const listPause = 200 * time.Millisecond

func (a *app) pause() error { return a.rest(listPause) }

func (a *app) rest(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a.ctx.Done():
		return a.ctx.Err()
	case <-timer.C:
		return nil
	}
}

// awaitList waits until an operation is over.
func (a *app) awaitList(path, operation string) (l server.NameList, err error) {
	for {
		l = server.NameList{}
		if err := a.call(http.MethodGet, path, nil, nil, &l); err != nil {
			return l, err
		}
		if l.Operation == nil || l.Operation.ID != operation {
			return l, nil
		}
		if err := a.pause(); err != nil {
			return l, err
		}
	}
}

type listsAcceptCmd struct {
	oneList
	Version int64 `arg:"" help:"Number of the version."`
}

// Run accepts a version.
func (c *listsAcceptCmd) Run(a *app) error {
	return a.done(a.call(http.MethodPost, c.version(c.Version)+"/accept", nil, nil, nil),
		"version %d of list %s is accepted: `schedctl lists switch %s %d`", c.Version, c.List, c.List, c.Version)
}

// editFlags are the flags of the commands add and remove.
type editFlags struct {
	oneList
	IDs    []string `arg:"" name:"id" help:"Ids, at most 1000."`
	Urgent bool     `help:"Also while an operation runs. It needs --author and --note."`
	whyFlags
}

func (c *editFlags) send(a *app, remove bool, expiresMS int64) error {
	body := server.EntriesRequest{Entries: changes(c.IDs, remove, expiresMS), Urgent: c.Urgent, ByWhom: c.by()}
	var out server.ListChanged
	if err := a.call(http.MethodPost, c.path()+"/entries", nil, body, &out); err != nil {
		return c.orApply(err)
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.println("list %s is at revision %d", c.List, out.Revision)
}

type listsAddCmd struct {
	editFlags
	For time.Duration `placeholder:"TIME" help:"The ids leave the list after this time."`
}

// Run adds ids.
func (c *listsAddCmd) Run(a *app) error { return c.send(a, false, expiry(c.For)) }

type listsRemoveCmd struct{ editFlags }

// Run removes ids.
func (c *listsRemoveCmd) Run(a *app) error { return c.send(a, true, 0) }

type listsQueryCmd struct {
	oneList
	IDs []string `arg:"" name:"id" help:"Ids, at most 1000."`
}

// Run asks for ids.
func (c *listsQueryCmd) Run(a *app) error {
	var out manage.Answers
	if err := a.call(http.MethodPost, c.path()+"/query", nil, server.QueryRequest{IDs: c.IDs}, &out); err != nil {
		return err
	}
	if err := c.print(a, &out); err != nil {
		return err
	}
	unknown := 0
	for _, f := range out.Found {
		if f.Why != "" {
			unknown++
		}
	}
	if unknown > 0 {
		return fmt.Errorf("%d of %s could not be answered", unknown, plural.Of(len(out.Found), "id", "ids"))
	}
	return nil
}

func (c *listsQueryCmd) print(a *app, out *manage.Answers) error {
	if a.json {
		return a.printJSON(out)
	}
	rows := [][]string{{"ID", "MEMBER", "EXPIRES", "FROM"}}
	for _, f := range out.Found {
		member, expires, from := "no", "-", fmt.Sprintf("version %d", out.Version)
		if f.Why != "" {
			member, from = "unknown", f.Why
		}
		if f.Member {
			member = "yes"
		}
		if f.ExpiresMS != 0 {
			expires = clock(f.ExpiresMS)
		}
		if f.Edited {
			from = "an edit"
		}
		rows = append(rows, []string{f.ID, member, expires, from})
	}
	return table(a.out, rows)
}

type listsCountCmd struct{ oneList }

// Run counts ids.
func (c *listsCountCmd) Run(a *app) error {
	var out manage.Counted
	if err := a.call(http.MethodGet, c.path()+"/count", nil, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.println(
		"%s at version %d, revision %d; expired ones count until the next version is built",
		plural.Of(out.Count, "id", "ids"), out.Version, out.Revision,
	)
}

type listsClientsCmd struct{ oneList }

// Run lists live clients.
func (c *listsClientsCmd) Run(a *app) error { return a.printClients(c.path()) }

// printClients prints the clients of what has the path.
func (a *app) printClients(path string) error {
	var out server.ListClients
	if err := a.call(http.MethodGet, path+"/clients", nil, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out.Clients)
	}
	rows := [][]string{{"CLIENT", "OWNER", "SDK", "SERVES", "LOADED", "REVISION", "REPORTED"}}
	for _, client := range out.Clients {
		rows = append(rows, []string{
			client.ID, client.Owner, dash(client.SDK), fmt.Sprint(client.Serves), fmt.Sprint(client.Loaded),
			fmt.Sprint(client.Revision), ago(client.AtMS),
		})
	}
	return table(a.out, rows)
}

type listsVerifyCmd struct {
	oneList
	Version int64 `arg:"" help:"Number of the version."`
}

// Run verifies a version.
func (c *listsVerifyCmd) Run(a *app) error {
	var out namelist.Version
	path := c.version(c.Version) + "/verify"
	if err := a.callFor(manage.VerifyTimeout, http.MethodPost, path, nil, nil, &out); err != nil {
		return err
	}
	if out.Damaged != "" {
		return fmt.Errorf("version %d of list %s is damaged: %s", c.Version, c.List, out.Damaged)
	}
	return a.println("version %d of list %s is whole: %s", c.Version, c.List, plural.Of(out.Count, "id", "ids"))
}

// done prints what a command without an answer has done. Programs have its exit code.
func (a *app) done(err error, format string, args ...any) error {
	if err != nil || a.json {
		return err
	}
	return a.println(format, args...)
}
