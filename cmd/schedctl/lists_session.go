package main

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/plural"
)

type listsSessionCmd struct {
	Begin  sessionBeginCmd  `cmd:"" help:"Begin an edit session. It ends by itself 10 minutes after its last command."`
	Add    sessionAddCmd    `cmd:"" help:"Stage ids to be added."`
	Remove sessionRemoveCmd `cmd:"" help:"Stage ids to be removed."`
	Commit sessionCommitCmd `cmd:"" help:"Put all that is staged into the list, at one revision."`
	Cancel sessionCancelCmd `cmd:"" help:"Forget what is staged."`
}

type sessionBeginCmd struct{ startFlags }

// Run begins a session.
func (c *sessionBeginCmd) Run(a *app) error {
	var out server.EditSession
	if err := a.call(http.MethodPost, c.path()+"/sessions", nil, server.WhyRequest{ByWhom: c.by()}, &out); err != nil {
		return c.orApply(err)
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.println(
		"session %s of list %s began; it ends at %s without another command", out.ID, c.List, clock(out.UntilMS),
	)
}

// oneSession names a session.
type oneSession struct {
	oneList
	Session string `arg:"" help:"Id of the session."`
}

func (c *oneSession) path() string { return c.oneList.path() + "/sessions/" + escaped(c.Session) }

// stageFlags are the flags of commands that stage ids.
type stageFlags struct {
	oneSession
	IDs []string `arg:"" name:"id" help:"Ids, at most 1000."`
}

func (c *stageFlags) stage(a *app, remove bool, expiresMS int64) error {
	var out server.EditSession
	if err := a.call(
		http.MethodPost, c.path(), nil, server.StageRequest{Entries: changes(c.IDs, remove, expiresMS)}, &out,
	); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.println(
		"%s staged; the session ends at %s without another command", plural.Of(out.Staged, "id is", "ids are"),
		clock(out.UntilMS),
	)
}

func changes(ids []string, remove bool, expiresMS int64) (out []namelist.Change) {
	for _, id := range ids {
		out = append(out, namelist.Change{Entry: namelist.Entry{ID: id, ExpiresMS: expiresMS}, Remove: remove})
	}
	return out
}

type sessionAddCmd struct {
	stageFlags
	For time.Duration `placeholder:"TIME" help:"The ids leave the list after this time."`
}

// Run stages ids to be added.
func (c *sessionAddCmd) Run(a *app) error { return c.stage(a, false, expiry(c.For)) }

// expiry returns the time that lies after from now; 0 is never.
func expiry(after time.Duration) int64 {
	if after <= 0 {
		return 0
	}
	return time.Now().Add(after).UnixMilli()
}

type sessionRemoveCmd struct{ stageFlags }

// Run stages ids to be removed.
func (c *sessionRemoveCmd) Run(a *app) error { return c.stage(a, true, 0) }

type sessionCommitCmd struct {
	oneSession
	whyFlags
}

// Run commits a session.
func (c *sessionCommitCmd) Run(a *app) error {
	var out server.ListChanged
	if err := a.call(http.MethodPost, c.path()+"/commit", nil, server.WhyRequest{ByWhom: c.by()}, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.println("list %s is at revision %d", c.List, out.Revision)
}

type sessionCancelCmd struct{ oneSession }

// Run cancels a session.
func (c *sessionCancelCmd) Run(a *app) error {
	return a.done(
		a.call(http.MethodDelete, c.path(), nil, nil, nil), "session %s of list %s is cancelled", c.Session, c.List,
	)
}

type listsUploadsCmd struct {
	Ls   uploadsLsCmd   `cmd:"" help:"List the uploads of a list on the replica that answers."`
	Show uploadsShowCmd `cmd:"" help:"Show an upload."`
	Rm   uploadsRmCmd   `cmd:"" help:"Forget an upload. Its build is cancelled."`
}

type uploadsLsCmd struct{ oneList }

// Run lists uploads.
func (c *uploadsLsCmd) Run(a *app) error {
	var out server.ListUploads
	if err := a.call(http.MethodGet, c.path()+"/uploads", nil, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out.Uploads)
	}
	rows := [][]string{{"UPLOAD", "STATE", "MODE", "BYTES", "VERSION", "REJECTED", "TOUCHED", "WHY"}}
	for i := range out.Uploads {
		u := &out.Uploads[i]
		version, rejected := "-", "-"
		if u.Version != nil {
			version = strconv.FormatInt(u.Version.Number, 10)
		}
		if u.Report != nil {
			rejected = strconv.FormatInt(u.Report.Rejected, 10)
		}
		rows = append(
			rows,
			[]string{
				u.ID, string(u.State), string(u.Mode), fmt.Sprint(u.Bytes), version, rejected, ago(u.Touched.UnixMilli()),
				dash(cmp.Or(u.Why, u.Unpublished)),
			},
		)
	}
	return table(a.out, rows)
}

// oneUpload names an upload.
type oneUpload struct {
	Upload string `arg:"" help:"Id of the upload."`
}

type uploadsShowCmd struct{ oneUpload }

// Run shows an upload.
func (c *uploadsShowCmd) Run(a *app) error {
	var out server.ListUpload
	if err := a.call(http.MethodGet, uploadPath(c.Upload), nil, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out)
	}
	rows := [][]string{
		{"upload", out.ID},
		{"list", out.List},
		{"state", string(out.State)},
		{"why", dash(out.Why)},
		{"mode", string(out.Mode)},
		{"format", string(out.Format)},
		{"switch", strconv.FormatBool(out.Switch)},
		{"by", dash(out.By.Author)},
		{"note", dash(out.By.Note)},
		{"bytes", strconv.FormatInt(out.Bytes, 10)},
		{"touched", clock(out.Touched.UnixMilli())},
		{"replica", dash(out.URL)},
	}
	if p := out.Progress; p != nil {
		rows = append(rows, []string{"progress", fmt.Sprintf("%s, %d of %d", p.Step, p.Done, p.Total)})
	}
	if v := out.Version; v != nil {
		rows = append(
			rows, []string{"version", strconv.FormatInt(v.Number, 10)}, []string{"ids", strconv.FormatInt(v.Count, 10)},
			[]string{"doubt", dash(v.Doubt)},
		)
	}
	if r := out.Report; r != nil {
		rows = append(
			rows, []string{"lines", strconv.FormatInt(r.Lines, 10)}, []string{"duplicates", strconv.FormatInt(r.Duplicates, 10)},
			[]string{"rejected", strconv.FormatInt(r.Rejected, 10)}, []string{"expired", strconv.FormatInt(r.Expired, 10)},
			[]string{"header", strconv.FormatBool(r.Header)},
		)
	}
	return table(a.out, rows)
}

type uploadsRmCmd struct{ oneUpload }

// Run forgets an upload.
func (c *uploadsRmCmd) Run(a *app) error {
	return a.done(a.call(http.MethodDelete, uploadPath(c.Upload), nil, nil, nil), "upload %s is forgotten", c.Upload)
}

type listsRollbackCmd struct {
	oneList
	Version int64 `arg:"" optional:"" help:"Number of the version (default: the newest that served before and can again)."`
	switchFlags
}

// Run switches to an older version.
func (c *listsRollbackCmd) Run(a *app) error {
	var l server.NameList
	if err := a.call(http.MethodGet, c.path(), nil, nil, &l); err != nil {
		return err
	}
	if l.Serving == nil {
		return fmt.Errorf("list %s serves no version", c.List)
	}
	version := c.Version
	if version == 0 {
		var all server.ListVersions
		if err := a.call(http.MethodGet, c.path()+"/versions", nil, nil, &all); err != nil {
			return err
		}
		for _, v := range all.Versions { // the newest first
			if v.Number < l.Serving.Number && v.StoppedMS != 0 && v.Damaged == "" && v.Doubt == "" {
				version = v.Number
				break
			}
		}
		if version == 0 {
			return fmt.Errorf(
				"list %s has no version before %d that has served and can again; to take another one, name it", c.List,
				l.Serving.Number,
			)
		}
	}
	if version >= l.Serving.Number {
		return usage("version %d is not older than version %d, which serves", version, l.Serving.Number)
	}
	// If another version serves meanwhile, someone else was here.
	to := listsSwitchCmd{oneList: c.oneList, Version: version, Serving: &l.Serving.Number, switchFlags: c.switchFlags}
	return to.Run(a)
}
