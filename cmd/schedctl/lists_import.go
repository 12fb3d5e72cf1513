package main

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/freeslot/freeslot/internal/namelist/build"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/operator"
)

type listsImportCmd struct {
	oneList
	File   string `arg:"" help:"A file, also one that gzip has compressed."`
	Format string `enum:",csv,txt" default:"" placeholder:"FORMAT" help:"csv (id,expiry) or txt (default: by the name of the file, else csv)."`
	Mode   string `enum:"replace,add,remove" default:"replace" placeholder:"MODE" help:"replace, add or remove (default ${default})."`
	Switch bool   `help:"Switch to the version when nothing speaks against it."`
	Upload string `placeholder:"ID" help:"Go on with this upload, which an interrupted import has named."`
	whyFlags
}

// chunk is how much of the file is sent at a time.
const chunk = 4 << 20

// Run uploads, and waits for the version.
func (c *listsImportCmd) Run(a *app) (err error) {
	file, err := os.Open(c.File)
	if err != nil {
		return usage("%w", err)
	}
	defer func() { _ = file.Close() }()
	u, err := c.open(a)
	if err != nil {
		return err
	}
	defer func() {
		if errors.Is(err, a.ctx.Err()) && a.ctx.Err() != nil {
			a.warn("interrupted; --upload %s goes on with it for a day", u.ID)
		}
	}()
	if u.State == manage.Open {
		if err := c.send(a, file, u); err != nil {
			return err
		}
	}
	for u.State == manage.Building {
		if err := a.pause(); err != nil {
			return err
		}
		if err := a.call(http.MethodGet, uploadPath(u.ID), nil, nil, u); err != nil {
			return err
		}
		if p := u.Progress; p != nil && a.terminal && p.Total > 0 {
			a.progress("%-7s %3d %%", p.Step, 100*p.Done/p.Total)
		}
		u.Progress = nil
	}
	if a.terminal {
		a.progress("")
	}
	return c.report(a, u)
}

func uploadPath(id string) string { return "/v1/list-uploads/" + escaped(id) }

// progress replaces the line of the terminal.
func (a *app) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "\r\x1b[K"+format, args...)
}

// open begins the upload, or finds the one to go on with.
func (c *listsImportCmd) open(a *app) (*operator.ListUpload, error) {
	var u operator.ListUpload
	if c.Upload != "" {
		return &u, a.call(http.MethodGet, uploadPath(c.Upload), nil, nil, &u)
	}
	body := operator.UploadRequest{Format: build.Format(cmp.Or(c.Format, formatOf(c.File))), Mode: manage.Mode(c.Mode), Switch: c.Switch, ByWhom: c.by()}
	return &u, a.call(http.MethodPost, c.path()+"/uploads", nil, body, &u)
}

// send sends what the upload does not have yet, and ends it.
func (c *listsImportCmd) send(a *app, file *os.File, u *operator.ListUpload) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	buffer := make([]byte, chunk)
	for u.Bytes < info.Size() {
		n, err := file.ReadAt(buffer, u.Bytes)
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return fmt.Errorf("read %s: %w", c.File, cmp.Or(err, io.ErrUnexpectedEOF))
		}
		sum := crc32.Checksum(buffer[:n], crc32.MakeTable(crc32.Castagnoli))
		query := url.Values{"offset": {strconv.FormatInt(u.Bytes, 10)}, "crc32c": {strconv.FormatUint(uint64(sum), 16)}}
		if err := a.api.call(a.ctx, http.MethodPut, uploadPath(u.ID), query, buffer[:n], 0, u); err != nil {
			return explain(err)
		}
		if a.terminal {
			a.progress("upload  %3d %%", 100*u.Bytes/info.Size())
		}
	}
	return a.call(http.MethodPost, uploadPath(u.ID)+"/commit", nil, operator.CommitUploadRequest{Bytes: u.Bytes}, u)
}

// report says what became of the upload.
func (c *listsImportCmd) report(a *app, u *operator.ListUpload) error {
	if a.json {
		return a.printJSON(u)
	}
	if u.Report != nil {
		for i, r := range u.Report.Rejects {
			if i == 10 {
				a.warn("and %d more; `schedctl lists rejects %s --upload %s` has the first %d", u.Report.Rejected-10, c.List, u.ID, build.MaxRejects)
				break
			}
			a.warn("line %d: %s", r.Line, r.Why)
		}
	}
	if u.State != manage.Ready {
		return fmt.Errorf("the import failed: %s", u.Why)
	}
	err := a.println("version %d of list %s is ready: %d ids of %d lines, %d duplicates, %d rejected",
		u.Version.Number, c.List, u.Version.Count, u.Report.Lines, u.Report.Duplicates, u.Report.Rejected)
	switch {
	case err != nil:
		return err
	case u.Version.Doubt != "":
		return a.println("it does not serve: %s; `schedctl lists accept %s %d`, then `schedctl lists switch %s %d`",
			u.Version.Doubt, c.List, u.Version.Number, c.List, u.Version.Number)
	case !c.Switch:
		return a.println("it does not serve yet: `schedctl lists switch %s %d`", c.List, u.Version.Number)
	}
	l, err := a.awaitSwitched(c.path(), u.Version.Number)
	if err != nil {
		return err
	}
	if l.Serving == nil || l.Serving.Number != u.Version.Number {
		return fmt.Errorf("list %s did not switch to version %d: `schedctl lists show %s` and the replica's log say why", c.List, u.Version.Number, c.List)
	}
	return a.println("it serves")
}

// awaitSwitched waits for the switch that the replica begins by itself.
func (a *app) awaitSwitched(path string, version int64) (l operator.NameList, err error) {
	for range 250 {
		l = operator.NameList{}
		if err := a.call(http.MethodGet, path, nil, nil, &l); err != nil {
			return l, err
		}
		if l.Serving != nil && l.Serving.Number == version {
			return l, nil
		}
		if err := a.pause(); err != nil {
			return l, err
		}
	}
	return l, nil
}
