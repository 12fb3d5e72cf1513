package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/schedctl/archive"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/server"
)

// restoredList is a list that is being restored.
type restoredList struct {
	*restore
	oneList

	// made are the versions that an earlier run made, the oldest first, less the ones that were met.
	made []namelist.Version
	// is has the new number of each version by the number in the backup.
	is map[int64]int64
	// serving is the version that serves here, 0 for none.
	serving int64
	frozen  bool // and so was restored before
}

// list restores a list with its versions, up to the record that ends it. If one version fails, what
// follows of the list is left out: it goes on there when it is run again.
func (r *restore) list(record archive.Record) error {
	var rec listRecord
	if err := decode(record, &rec); err != nil {
		return err
	}
	l := &restoredList{restore: r, oneList: oneList{rec.Name}, is: make(map[int64]int64)}
	err := l.begin(&rec)
	there := err == nil && len(l.made) > 0
	if err != nil && r.ends(err) {
		return fmt.Errorf("list %s: %w", rec.Name, err)
	}
	for {
		record, failed := r.next()
		switch {
		case errors.Is(failed, io.EOF):
			return fmt.Errorf("%w: list %s has no end", archive.ErrDamaged, rec.Name)
		case failed != nil:
			return failed
		}
		switch record.Kind {
		case kindListEnd:
			var last listEndRecord
			if failed := decode(record, &last); failed != nil {
				return failed
			}
			if err == nil {
				err = l.end(&last)
			}
			return r.outcome(kindList, rec.Name, there, err)
		case kindIDs: // of a version that is left out
		case kindListVersion:
			var v listVersionRecord
			if failed := decode(record, &v); failed != nil {
				return failed
			}
			if err == nil {
				if err = l.version(&v); err != nil && r.ends(err) {
					return fmt.Errorf("list %s, version %d: %w", rec.Name, v.Number, err)
				}
			}
		default:
			return fmt.Errorf("%w: a record of kind %.64q is within list %s", archive.ErrDamaged, record.Kind, rec.Name)
		}
	}
}

// begin makes the list, or finds out how far an earlier run came.
func (l *restoredList) begin(rec *listRecord) error {
	var here server.NameList
	err := l.call(http.MethodGet, l.path(), nil, nil, &here)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		return l.put(http.MethodPut, l.path(), rec.Spec, nil)
	}
	if err == nil && here.Operation != nil { // a build of an earlier run goes on in the replica
		here, err = l.awaitList(l.path(), here.Operation.ID)
	}
	if err != nil {
		return err
	}
	var all server.ListVersions
	if err := l.call(http.MethodGet, l.path()+"/versions", nil, nil, &all); err != nil {
		return err
	}
	if l.frozen = here.State == namelist.Frozen; here.Serving != nil {
		l.serving = here.Serving.Number
	}
	slices.Reverse(all.Versions)
	l.made = all.Versions
	return nil
}

// version makes a version, or finds the one of an earlier run.
func (l *restoredList) version(v *listVersionRecord) error {
	var made *namelist.Version
	if len(l.made) > 0 {
		made, l.made = &l.made[0], l.made[1:]
		if made.Note != v.Note {
			return fmt.Errorf("version %d: %w", made.Number, errDiffersHere)
		}
		l.report.count(kindListVersion).There++
	} else {
		var err error
		if made, err = l.build(v); err != nil {
			return err
		}
		l.report.count(kindListVersion).Restored++
	}
	l.is[v.Number] = made.Number
	l.report.Versions = append(l.report.Versions, restoredVersion{l.List, v.Number, made.Number})
	if l.frozen {
		return nil
	}
	if made.Doubt != "" && v.Doubt == "" {
		if err := l.put(http.MethodPost, l.oneList.version(made.Number)+"/accept", nil, nil); err != nil {
			return err
		}
	}
	if v.Served && made.StoppedMS == 0 {
		return l.serve(made.Number)
	}
	return nil
}

// build uploads the ids that follow, and waits for the version. No header is in them.
func (l *restoredList) build(v *listVersionRecord) (*namelist.Version, error) {
	ids := &idReader{r: l.restore}
	imports := &listsImportCmd{
		oneList: l.oneList, File: "-", Format: "csv", Mode: string(manage.Replace), Header: "no",
		whyFlags: whyFlags{Author: v.Author, Note: v.Note},
	}
	var u *server.ListUpload
	err := l.patiently(func() (err error) {
		u, err = imports.open(l.app)
		return err
	})
	if err != nil {
		return nil, err
	}
	in := &importInput{Reader: bufio.NewReaderSize(ids, chunk), close: func() {}}
	if err := imports.send(l.app, in, u); err != nil {
		return nil, err
	}
	for u.State == manage.Building {
		if err := l.pause(); err != nil {
			return nil, err
		}
		if err := imports.ask(l.app, http.MethodGet, uploadPath(u.ID), nil, nil, u); err != nil {
			return nil, err
		}
		u.Progress = nil
	}
	switch {
	case u.State != manage.Ready:
		return nil, fmt.Errorf("the build failed: %s", u.Why)
	case u.Report.Rejected != u.Report.Expired || u.Version.Count+u.Report.Expired != ids.lines:
		return nil, fmt.Errorf(
			"version %d has %d ids, and %d have expired, expected %d together", u.Version.Number, u.Version.Count,
			u.Report.Expired, ids.lines,
		)
	}
	// A replica keeps a bounded number of uploads. If this fails, it goes by itself after a day.
	_ = imports.ask(l.app, http.MethodDelete, uploadPath(u.ID), nil, nil, nil)
	l.report.count(kindIDs).Restored += int(u.Version.Count)
	return u.Version, nil
}

// serve switches to a version.
func (l *restoredList) serve(number int64) error {
	if l.serving == number {
		return nil
	}
	var out server.ListStarted
	body := server.ListSwitchRequest{Version: number, Now: true, ByWhom: server.ByWhom{Note: "restore"}}
	if err := l.put(http.MethodPost, l.path()+"/switch", body, &out); err != nil {
		return err
	}
	here, err := l.awaitList(l.path(), out.Operation.ID)
	if err != nil {
		return err
	}
	if here.Serving == nil || here.Serving.Number != number {
		return fmt.Errorf("it did not switch to version %d: the replica's log says why", number)
	}
	l.serving = number
	return nil
}

// end makes the list serve what it served, and gives it what belongs to the list as a whole.
func (l *restoredList) end(last *listEndRecord) error {
	if l.frozen {
		return nil
	}
	if number, ok := l.is[last.Serving]; ok {
		if err := l.serve(number); err != nil {
			return err
		}
	}
	for to, may := range last.Grants {
		if err := l.put(http.MethodPut, l.path()+"/grants", server.GrantRequest{To: to, May: may}, nil); err != nil {
			return err
		}
	}
	if last.Source != nil {
		if err := l.put(http.MethodPut, l.path()+"/source", last.Source, nil); err != nil {
			return err
		}
	}
	if last.Frozen {
		return l.put(http.MethodPost, l.path()+"/freeze", server.WhyRequest{}, nil)
	}
	return nil
}

// idReader reads the ids of one version.
type idReader struct {
	r     *restore
	text  string
	lines int64
}

func (i *idReader) Read(p []byte) (int, error) {
	for i.text == "" {
		record, ok, err := i.r.nextOf(kindIDs)
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, io.EOF
		}
		var ids idsRecord
		if err := decode(record, &ids); err != nil {
			return 0, err
		}
		i.text = ids.CSV
		i.lines += lines(ids.CSV)
	}
	n := copy(p, i.text)
	i.text = i.text[n:]
	return n, nil
}
