package main

import (
	"bufio"
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
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/plural"
)

type listsImportCmd struct {
	oneList
	File   string `arg:"" help:"A file, also one that gzip has compressed; - is standard input."`
	Format string `enum:",csv,txt" default:"" placeholder:"FORMAT" help:"csv (id,expiry) or txt (default: by the name of the file, else csv)."`
	Mode   string `enum:"replace,add,remove" default:"replace" placeholder:"MODE" help:"replace, add or remove (default ${default})."`
	Header string `enum:"auto,yes,no" default:"auto" placeholder:"WHICH" help:"Whether the first line is a header, which is left out: yes, no or auto, which knows id and id,expiry in a CSV (default ${default})."`
	Switch bool   `help:"Switch to the version when nothing speaks against it."`
	Upload string `placeholder:"ID" help:"Go on with this upload, which an interrupted import has named."`
	whyFlags

	home string // the replica that opened the upload
}

// chunk is the size of the pieces in which the file is sent.
const chunk = 4 << 20

// Run uploads, and waits for the version.
func (c *listsImportCmd) Run(a *app) (err error) {
	in, err := c.input(a)
	if err != nil {
		return err
	}
	defer in.close()
	u, err := c.open(a)
	if err != nil {
		return err
	}
	if err := c.same(in, u); err != nil {
		return err
	}
	defer func() { err = c.left(a, u, err) }()
	if u.State == manage.Open {
		if err := c.send(a, in, u); err != nil {
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

// left adds to the error of an import what goes on without it, and how to follow that.
func (c *listsImportCmd) left(a *app, u *server.ListUpload, err error) error {
	resume := fmt.Sprintf("schedctl %slists import %s %s --upload %s", a.flags, quoted(c.List), quoted(c.File), u.ID)
	hint := ""
	switch {
	case err == nil:
		return nil
	case u.State == manage.Open:
		hint = "for a day this goes on: " + resume
	case u.State == manage.Building && u.Switch:
		hint = fmt.Sprintf(
			"the replica goes on with the build, and will switch; `schedctl lists cancel %s` ends it, and this waits for it: %s",
			c.List, resume,
		)
	case u.State == manage.Building:
		hint = fmt.Sprintf(
			"the replica goes on with the build; `schedctl lists cancel %s` ends it, and this waits for it: %s", c.List, resume,
		)
	case u.State == manage.Ready && u.Switch && a.ctx.Err() != nil:
		hint = fmt.Sprintf("the replica goes on with the switch; `schedctl lists cancel %s` ends it", c.List)
	default:
		return err
	}
	if a.ctx.Err() != nil {
		return exitError{exitFailure, errors.New("interrupted; " + hint)}
	}
	return fmt.Errorf("%w\n%s", err, hint)
}

func uploadPath(id string) string { return "/v1/list-uploads/" + escaped(id) }

// barWidth is the width of a progress bar.
const barWidth = 30

// progress shows a bar in the last line of a terminal; without a step it clears the line.
func (a *app) progress(step string, done, total int64) {
	if !a.errTerminal || step != "" && total <= 0 {
		return
	}
	line := ""
	if step != "" {
		done = min(done, total)
		n := int(barWidth * done / total)
		line = fmt.Sprintf(
			"%-7s [%s%s] %3d %%", step, strings.Repeat("#", n), strings.Repeat(" ", barWidth-n), 100*done/total,
		)
	}
	_, _ = fmt.Fprint(a.err, "\r\x1b[K"+line)
}

// open begins the upload, or finds the one to continue.
func (c *listsImportCmd) open(a *app) (*server.ListUpload, error) {
	var u server.ListUpload
	if c.Upload != "" {
		err := a.call(http.MethodGet, uploadPath(c.Upload), nil, nil, &u)
		if err == nil && u.List != c.List {
			err = usage("upload %s is of list %s", u.ID, u.List)
		}
		return &u, err
	}
	body := server.UploadRequest{
		Format: version.Format(cmp.Or(c.Format, formatOf(c.File))), Mode: manage.Mode(c.Mode),
		Header: version.HeaderChoice(c.Header), Switch: c.Switch, ByWhom: c.by(),
	}
	err := a.call(http.MethodPost, c.path()+"/uploads", nil, body, &u)
	c.home = u.URL
	return &u, c.orApply(err)
}

// repeats is how often a request of an import is sent again if there is no connection.
const repeats = 3

// ask calls the replica that has the upload, with a request that can be repeated.
func (c *listsImportCmd) ask(a *app, method, path string, query url.Values, content []byte, out any) error {
	for n := range repeats {
		err := c.askOnce(a, method, path, query, content, out)
		if !errors.As(err, new(*unreachableError)) || a.ctx.Err() != nil {
			return explain(err)
		}
		if err := a.rest(listPause << (2 * n)); err != nil {
			return err
		}
	}
	return explain(c.askOnce(a, method, path, query, content, out))
}

// askOnce follows the upload: if a replica answers that it does not have it, askOnce asks the
// replica that opened it. --upload does not tell which replica to trust with the token.
func (c *listsImportCmd) askOnce(a *app, method, path string, query url.Values, content []byte, out any) error {
	err := a.api.call(a.ctx, method, path, query, content, 0, out)
	if e, ok := errors.AsType[*freeslot.Error](err); ok && e.Code == freeslot.CodeNotFound && e.Field == "upload" &&
		c.home != "" {
		files := a.tls
		if !strings.HasPrefix(c.home, "https://") {
			files = client.TLS{} // see below
		}
		home, parsed := newAPIClient(c.home, a.token, files)
		if parsed != nil {
			return parsed
		}
		if a.api.base.Scheme == "https" && home.base.Scheme != "https" {
			return fmt.Errorf(
				"the upload is on the replica at %s, which has no https as %s does, so neither token nor file goes there: set "+
					"advertise of that replica to https, or name it in --server",
				c.home, a.api.base,
			)
		}
		a.api.close()
		a.api, c.home = home, ""
		err = a.api.call(a.ctx, method, path, query, content, 0, out)
	}
	return err
}

// importInput is the input of an import: a file, a pipe, a device or standard input, read once from
// its beginning to its end.
type importInput struct {
	*bufio.Reader

	close func()
	size  int64 // size of a regular file, for the bar; 0 for others
}

// input opens the input and reads its beginning: an input that cannot be read leaves no upload
// behind.
func (c *listsImportCmd) input(a *app) (*importInput, error) {
	in := &importInput{close: func() {}}
	from := a.in
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return nil, usage("%w", err)
		}
		from, in.close = file, func() { _ = file.Close() }
		info, err := file.Stat()
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a folder, expected a file, or - for standard input", c.File)
		}
		if err != nil {
			in.close()
			return nil, usage("%w", err)
		}
		if info.Mode().IsRegular() {
			in.size = info.Size()
		}
	}
	in.Reader = bufio.NewReaderSize(from, chunk)
	if _, err := in.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		in.close()
		return nil, usage("read %s: %w", c.File, err)
	}
	return in, nil
}

// send sends what the upload does not have yet, up to the end of the input, and ends it.
func (c *listsImportCmd) send(a *app, in *importInput, u *server.ListUpload) error {
	buffer := make([]byte, chunk)
	for end := false; !end; {
		n, err := io.ReadFull(in, buffer)
		if end = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && !end {
			return fmt.Errorf("read %s: %w", c.File, err)
		}
		if n == 0 {
			break
		}
		sum := crc32.Checksum(buffer[:n], castagnoli)
		query := url.Values{"offset": {strconv.FormatInt(u.Bytes, 10)}, "crc32c": {strconv.FormatUint(uint64(sum), 16)}}
		if err := c.ask(a, http.MethodPut, uploadPath(u.ID), query, buffer[:n], u); err != nil {
			return err
		}
		a.progress("upload", u.Bytes, max(in.size, u.Bytes))
	}
	body, err := json.Marshal(server.CommitUploadRequest{Bytes: u.Bytes})
	return cmp.Or(err, c.ask(a, http.MethodPost, uploadPath(u.ID)+"/commit", nil, body, u))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// same reads the part of the input that the upload has, which must be the same: the beginning or,
// once the upload is committed, everything.
func (c *listsImportCmd) same(in *importInput, u *server.ListUpload) error {
	sum, part := crc32.New(castagnoli), io.Reader(io.LimitReader(in, u.Bytes))
	if u.State != manage.Open {
		part = in
	}
	n, err := io.Copy(sum, part)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.File, err)
	}
	if n != u.Bytes || sum.Sum32() != u.Sum {
		return fmt.Errorf(
			"%s is not the file whose first %d bytes upload %s has: import it without --upload", c.File, u.Bytes, u.ID,
		)
	}
	return nil
}

// report prints what happened to the upload.
func (c *listsImportCmd) report(a *app, u *server.ListUpload) error {
	say := a.println
	if a.json {
		if err := a.printJSON(u); err != nil {
			return err
		}
		say = func(string, ...any) error { return nil }
	} else if u.Report != nil {
		if u.Report.HeaderLike != "" {
			a.warn(
				"line 1 looks like a header and was read as an id: %s; --header yes leaves it out",
				shorten(clean(u.Report.HeaderLike), maxCell),
			)
		}
		for i, r := range u.Report.Rejects {
			if i == 10 {
				a.warn(
					"and %d more; `schedctl lists rejects %s --upload %s` has the first %d", u.Report.Rejected-10, c.List, u.ID,
					version.MaxRejects,
				)
				break
			}
			a.warn("line %d: %s", r.Line, r.Why)
		}
	}
	if u.State != manage.Ready {
		return fmt.Errorf("the import failed: %s", u.Why)
	}
	n := u.Version.Number
	rejected := fmt.Sprintf("%d rejected", u.Report.Rejected)
	if u.Report.Expired > 0 {
		rejected += fmt.Sprintf(", of which %d expired before the import", u.Report.Expired)
	}
	if err := say("version %d of list %s is ready: %s of %s, %s, %s", n, c.List, plural.Of(u.Version.Count, "id", "ids"),
		plural.Of(u.Report.Lines, "line", "lines"), plural.Of(u.Report.Duplicates, "duplicate", "duplicates"),
		rejected); err != nil {
		return err
	}
	idle := ""
	switch {
	case u.Version.Doubt != "":
		idle = fmt.Sprintf(
			"it does not serve: %s; `schedctl lists accept %s %d`, then `schedctl lists switch %s %d`", u.Version.Doubt, c.List,
			n, c.List, n,
		)
	case !u.Switch:
		idle = fmt.Sprintf("it does not serve yet: `schedctl lists switch %s %d`", c.List, n)
	}
	switch {
	case idle != "" && (c.Switch || u.Switch): // with --upload alone the upload still asks for it
		return errors.New(idle)
	case idle != "":
		return say("%s", idle)
	}
	if err := c.awaitSwitched(a, u); err != nil {
		return err
	}
	return say("it serves")
}

// awaitSwitched waits for the switch that the replica begins by itself.
func (c *listsImportCmd) awaitSwitched(a *app, u *server.ListUpload) error {
	version := u.Version.Number
	for range 250 {
		var l server.NameList
		if err := a.call(http.MethodGet, c.path(), nil, nil, &l); err != nil {
			return err
		}
		if l.Serving != nil && l.Serving.Number == version {
			return nil
		}
		if l.Serving != nil && l.Serving.Number > version { // a later switch was quicker
			break
		}
		if err := c.ask(a, http.MethodGet, uploadPath(u.ID), nil, nil, u); err != nil {
			return err
		}
		if u.Unpublished != "" {
			again := fmt.Sprintf("; `schedctl lists switch %s %d` tries again", c.List, version)
			if strings.HasPrefix(u.Unpublished, server.PendingCode) {
				again = "" // it would ask for the same approval
			}
			return fmt.Errorf("list %s did not switch to version %d: %s%s", c.List, version, u.Unpublished, again)
		}
		if err := a.pause(); err != nil {
			return err
		}
	}
	return fmt.Errorf(
		"list %s did not switch to version %d: `schedctl lists show %s` and the replica's log say why", c.List, version,
		c.List,
	)
}
