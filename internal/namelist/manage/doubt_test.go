package manage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// "Less than half" and "more than twice" are exact, also of odd numbers.
func TestDoubtByCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, count int64
		doubt         bool
	}{
		{3, 1, true},
		{3, 2, false},
		{5, 2, true},
		{5, 3, false},
		{7, 3, true},
		{7, 4, false},
		{4, 2, false},
		{4, 1, true},
		{1, 1, false},
		{3, 6, false},
		{3, 7, true},
		{1, 2, false},
		{1, 3, true},
		{0, 1, false},
		{0, 1_000_000, false},
	} {
		for _, h := range []*namelist.Head{{Expected: c.before}, {Serving: &namelist.Version{Count: c.before}}} {
			if c.before == 0 && h.Serving != nil {
				continue
			}
			if got := doubt(h, &namelist.Version{Count: c.count}, namelist.OpImport, 0, false); (got != "") != c.doubt {
				t.Errorf("%d ids in place of %d: %q, expected a doubt: %v", c.count, c.before, got, c.doubt)
			}
		}
	}
}

func TestDoubtSays(t *testing.T) {
	t.Parallel()
	h := &namelist.Head{Serving: &namelist.Version{Count: 3}}
	for want, c := range map[string]struct {
		v       namelist.Version
		nothing bool
	}{
		"1 line was rejected":                           {namelist.Version{Count: 3, Rejected: 1}, false},
		"2 lines were rejected":                         {namelist.Version{Count: 3, Rejected: 2}, true},
		"it is empty":                                   {namelist.Version{}, true},
		"the import has no entry":                       {namelist.Version{Count: 3}, true},
		"it has 1 id, and 3 are in the serving version": {namelist.Version{Count: 1}, false},
	} {
		if got := doubt(h, &c.v, namelist.OpImport, c.v.Rejected, c.nothing); got != want {
			t.Errorf("doubt is %q, expected %q", got, want)
		}
	}
}

// An upload without any entry waits to be accepted in every mode, and one whose lines expired before
// it names them.
func TestImportsOfNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: "vip", Switch: true, By: by}, "a\nb\n")
	r.serves("vip", 1)
	for _, mode := range []Mode{Replace, Add, Remove} {
		for _, content := range []string{"", "id,expiry\n"} {
			u := r.upload(Upload{List: "vip", Mode: mode, Switch: true, By: by}, content)
			if u.State != Ready || u.Version.Doubt == "" {
				t.Errorf("%s of %q: %+v, expected a version in doubt", mode, content, u)
			}
		}
	}
	u := r.upload(Upload{List: "vip", Mode: Add, Switch: true, By: by}, "c,1000000000\nd,3600\ne\n")
	if u.State != Ready || u.Version.Rejected != 2 || u.Report.Expired != 1 || u.Version.Doubt != "1 line was rejected" {
		t.Errorf("%+v, expected two refused lines, of which one had expired", u)
	}
	rejects, err := r.RejectsOf(r.ctx, "vip", u.Version.Number, 0, 10)
	r.check(err)
	if len(rejects.Rejects) != 2 || rejects.Rejects[0].Why != "expired before the import" {
		t.Errorf("%+v, expected both lines", rejects)
	}
	// Columns that a semicolon parts would be one id each.
	u = r.upload(Upload{List: "vip", Switch: true, By: by}, "id;expiry\na;2030-01-01T00:00:00Z\nb;\n")
	if u.State != Ready || u.Version.Doubt == "" || len(u.Report.Rejects) != 1 || !strings.Contains(u.Report.Rejects[0].Why, "parted by ;") {
		t.Errorf("%+v, %+v, expected a doubt about the semicolons", u, u.Report)
	}
	// Lines that expired alone are no mistake.
	u = r.upload(Upload{List: "vip", Mode: Add, By: by}, "c,1000000000\ne\n")
	if u.State != Ready || u.Version.Rejected != 1 || u.Report.Expired != 1 || u.Version.Doubt != "" {
		t.Errorf("%+v, expected a refused line and no doubt", u)
	}
	// What is removed needs no time.
	u = r.upload(Upload{List: "vip", Mode: Remove, Switch: true, By: by}, "a,1000000000\n")
	if u.Version.Doubt != "" || u.Version.Count != 1 {
		t.Errorf("%+v, expected one id less", u)
	}
	r.serves("vip", u.Version.Number)
	if h := r.head("vip"); h.Serving.Number != u.Version.Number {
		t.Errorf("version %d serves, expected %d", h.Serving.Number, u.Version.Number)
	}
}

// Of ids of which one can be in no list, or in a damaged part, the others are answered.
func TestQueryAnswersTheOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: "vip", Switch: true, By: by}, "a\nb\n")
	r.serves("vip", 1)
	a, err := r.Query(r.ctx, "vip", []string{"a", "", " b", "b", "c"})
	r.check(err)
	for i, want := range []Found{{ID: "a", Member: true}, {Why: "invalid id: it is empty"}, {ID: " b", Why: "invalid id: it begins or ends with white space"}, {ID: "b", Member: true}, {ID: "c"}} {
		if a.Found[i] != want {
			t.Errorf("answer %d is %+v, expected %+v", i, a.Found[i], want)
		}
	}
	_, err = r.control.Edit(r.ctx, "vip", namelist.EditRequest{Changes: []namelist.Change{{Entry: namelist.Entry{ID: "edited"}}}, By: by})
	r.check(err)
	for _, key := range r.dataKeys() {
		client := r.redis.Client(t)
		r.check(client.Do(r.ctx, client.B().Del().Key(key).Build()).Error())
	}
	a, err = r.Query(r.ctx, "vip", []string{"a", "edited"})
	r.check(err)
	if !strings.Contains(a.Found[0].Why, "has no seal") || a.Found[1] != (Found{ID: "edited", Member: true, Edited: true}) {
		t.Errorf("%+v, expected no answer for a, and that of the edit", a.Found)
	}
	if _, err := r.Count(r.ctx, "vip"); !errors.As(err, new(*version.DamageError)) {
		t.Errorf("count: %v, expected the damage", err)
	}
}

// The folder is made when it is first needed; where that fails, the error names its key.
func TestFolderAtFirstUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	for dir, can := range map[string]bool{filepath.Join(t.TempDir(), "a", "b"): true, "/proc/freeslot-lists": false} {
		m := New(Config{Self: "r2", Dir: dir, Pause: time.Minute, Server: r.server}, r.control, zaptest.NewLogger(t))
		r.check(m.Start(r.ctx))
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is there before its first use", dir)
		}
		u, err := m.OpenUpload(r.ctx, Upload{List: "vip", By: by})
		switch {
		case can && (err != nil || u.State != Open):
			t.Errorf("%+v, %v, expected an upload", u, err)
		case !can && (freeslot.CodeOf(err) != freeslot.CodeUnavailable || !strings.Contains(err.Error(), "lists.dir")):
			t.Errorf("%v, expected unavailable, with lists.dir", err)
		}
		r.check(m.Stop(r.ctx))
	}
	if got := r.named(fs.ErrPermission); got != fs.ErrPermission { //nolint:errorlint // it is the very error
		t.Errorf("%v, expected an error without a path as it was", got)
	}
}
