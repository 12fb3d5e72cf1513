package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
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

	home string // the replica that opened the upload
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
		if a.ctx.Err() != nil {
			a.warn("interrupted; for a day this goes on: schedctl lists import %s %s --upload %s", c.List, c.File, u.ID)
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
		if err := c.ask(a, http.MethodGet, uploadPath(u.ID), nil, nil, u); err != nil {
			return err
		}
		if p := u.Progress; p != nil {
			a.progress(string(p.Step), p.Done, p.Total)
		}
		u.Progress = nil
	}
	a.progress("", 0, 0)
	return c.report(a, u)
}

func uploadPath(id string) string { return "/v1/list-uploads/" + escaped(id) }

// barWidth is the width of a progress bar.
const barWidth = 30

// progress shows a bar in the last line of a terminal; without a step it clears the line.
func (a *app) progress(step string, done, total int64) {
	if !a.terminal || step != "" && total <= 0 {
		return
	}
	line := ""
	if step != "" {
		done = min(done, total)
		n := int(barWidth * done / total)
		line = fmt.Sprintf("%-7s [%s%s] %3d %%", step, strings.Repeat("#", n), strings.Repeat(" ", barWidth-n), 100*done/total)
	}
	_, _ = fmt.Fprint(a.err, "\r\x1b[K"+line)
}

// open begins the upload, or finds the one to go on with.
func (c *listsImportCmd) open(a *app) (*operator.ListUpload, error) {
	var u operator.ListUpload
	if c.Upload != "" {
		err := a.call(http.MethodGet, uploadPath(c.Upload), nil, nil, &u)
		if err == nil && u.List != c.List {
			err = usage("upload %s is of list %s", u.ID, u.List)
		}
		return &u, err
	}
	body := operator.UploadRequest{Format: build.Format(cmp.Or(c.Format, formatOf(c.File))), Mode: manage.Mode(c.Mode), Switch: c.Switch, ByWhom: c.by()}
	err := a.call(http.MethodPost, c.path()+"/uploads", nil, body, &u)
	c.home = u.URL
	return &u, c.orApply(err)
}

// ask calls the replica that has the upload. Another one answers that it is not there: then the
// replica is asked that opened it. --upload does not say which one to trust with the token.
func (c *listsImportCmd) ask(a *app, method, path string, query url.Values, content []byte, out any) error {
	err := a.api.call(a.ctx, method, path, query, content, 0, out)
	if e, ok := errors.AsType[*freeslot.Error](err); ok && e.Code == freeslot.CodeNotFound && e.Field == "upload" && c.home != "" {
		home, parsed := newAPIClient(c.home, a.token)
		if parsed != nil {
			return parsed
		}
		a.api.close()
		a.api, c.home = home, ""
		err = a.api.call(a.ctx, method, path, query, content, 0, out)
	}
	return explain(err)
}

// send sends what the upload does not have yet, and ends it.
func (c *listsImportCmd) send(a *app, file *os.File, u *operator.ListUpload) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := c.same(file, u); err != nil {
		return err
	}
	buffer := make([]byte, chunk)
	for u.Bytes < info.Size() {
		n, err := file.ReadAt(buffer, u.Bytes)
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return fmt.Errorf("read %s: %w", c.File, cmp.Or(err, io.ErrUnexpectedEOF))
		}
		sum := crc32.Checksum(buffer[:n], castagnoli)
		query := url.Values{"offset": {strconv.FormatInt(u.Bytes, 10)}, "crc32c": {strconv.FormatUint(uint64(sum), 16)}}
		if err := c.ask(a, http.MethodPut, uploadPath(u.ID), query, buffer[:n], u); err != nil {
			return err
		}
		a.progress("upload", u.Bytes, info.Size())
	}
	body, err := json.Marshal(operator.CommitUploadRequest{Bytes: u.Bytes})
	return cmp.Or(err, c.ask(a, http.MethodPost, uploadPath(u.ID)+"/commit", nil, body, u))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// same compares the begin of the file with what the upload has.
func (c *listsImportCmd) same(file *os.File, u *operator.ListUpload) error {
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, io.NewSectionReader(file, 0, u.Bytes))
	if err != nil {
		return fmt.Errorf("read %s: %w", c.File, err)
	}
	if n < u.Bytes || sum.Sum32() != u.Sum {
		return fmt.Errorf("%s is not the file whose first %d bytes upload %s has: import it without --upload", c.File, u.Bytes, u.ID)
	}
	return nil
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
	case !u.Switch:
		return a.println("it does not serve yet: `schedctl lists switch %s %d`", c.List, u.Version.Number)
	}
	return c.awaitSwitched(a, u)
}

// awaitSwitched waits for the switch that the replica begins by itself.
func (c *listsImportCmd) awaitSwitched(a *app, u *operator.ListUpload) error {
	version := u.Version.Number
	for range 250 {
		var l operator.NameList
		if err := a.call(http.MethodGet, c.path(), nil, nil, &l); err != nil {
			return err
		}
		if l.Serving != nil && l.Serving.Number == version {
			return a.println("it serves")
		}
		if err := c.ask(a, http.MethodGet, uploadPath(u.ID), nil, nil, u); err != nil {
			return err
		}
		if u.Unpublished != "" {
			return fmt.Errorf("list %s did not switch to version %d: %s; `schedctl lists switch %s %d` tries again", c.List, version, u.Unpublished, c.List, version)
		}
		if err := a.pause(); err != nil {
			return err
		}
	}
	return fmt.Errorf("list %s did not switch to version %d: `schedctl lists show %s` and the replica's log say why", c.List, version, c.List)
}
