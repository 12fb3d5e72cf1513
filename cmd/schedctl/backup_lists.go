package main

import (
	"bytes"
	"cmp"
	"net/url"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/server"
)

func (b *backup) lists() error {
	var sources server.ListSources
	if err := b.get("/v1/list-sources", nil, &sources); err != nil {
		return err
	}
	of := make(map[string]*server.ListSourceSpec)
	for i := range sources.Lists {
		s := &sources.Lists[i]
		of[s.List] = &server.ListSourceSpec{
			Source: s.Source, Cron: s.Cron, TimeZone: s.TimeZone, ByWhom: server.ByWhom{Author: s.Author, Note: s.Note},
		}
	}
	for query := (url.Values{"limit": {"100"}}); ; {
		var page server.NameListPage
		if err := b.get(listsPath, query, &page); err != nil {
			return err
		}
		for i := range page.Lists {
			if err := b.list(&page.Lists[i], of[page.Lists[i].Name]); err != nil {
				return err
			}
		}
		if page.After == "" {
			return nil
		}
		query.Set("after", page.After)
	}
}

// list writes a list with its versions, the oldest first.
func (b *backup) list(l *server.NameList, source *server.ListSourceSpec) error {
	if l.State == namelist.Deleting {
		return nil
	}
	var all server.ListVersions
	path := (&oneList{l.Name}).path()
	if err := b.get(path+"/versions", nil, &all); err != nil {
		return err
	}
	if err := b.add(kindList, listRecord{l.Name, l.ListSpec}); err != nil {
		return err
	}
	last := listEndRecord{Frozen: l.State == namelist.Frozen, Grants: l.Grants, Source: source}
	if l.Serving != nil {
		last.Serving = l.Serving.Number
	}
	versions := restorable(all.Versions, last.Serving)
	for i := range versions {
		if err := b.listVersion(l.Name, &versions[i], versions[i].Number == last.Serving); err != nil {
			return err
		}
	}
	return b.add(kindListEnd, last)
}

// restorable returns the versions to keep, the oldest first. Of the versions that served before the
// serving one, only the newest stays: the others are there for clients, and a list drops them.
func restorable(newestFirst []namelist.Version, serving int64) (out []namelist.Version) {
	back := false
	for i := range newestFirst {
		v := &newestFirst[i]
		older := v.Number < serving && v.StoppedMS != 0
		if older && back || v.Damaged != "" && v.Number != serving {
			continue
		}
		back = back || older
		out = append(out, *v)
	}
	slices.Reverse(out)
	return out
}

// listVersion writes what the list answers when this version serves.
func (b *backup) listVersion(list string, v *namelist.Version, serving bool) error {
	w := &idWriter{b: b, version: listVersionRecord{
		Number: v.Number, Served: serving || v.StoppedMS != 0, Doubt: v.Doubt, Author: v.Author, Note: v.Note,
	}}
	export := &listsExportCmd{oneList: oneList{list}, File: "-", Version: v.Number}
	var cut error
	err := b.patiently(func() error {
		_, err := export.write(b.app, w)
		if w.begun { // what was written stays written, so this cannot be repeated
			cut = err
			return nil
		}
		return err
	})
	err = cmp.Or(err, cut)
	switch code := freeslot.CodeOf(err); {
	case err == nil:
		return w.end()
	case !w.begun && (code == freeslot.CodeNotFound || code == freeslot.CodeConflict):
		b.bad = b.bad || serving
		b.lack("version %d of list %s: %v", v.Number, list, err)
		return nil
	}
	return err
}

// idsSize is about the size of the text in a record of ids.
const idsSize = 64 << 10

// idWriter cuts an export into records. The first line is the header of the CSV.
type idWriter struct {
	b       *backup
	version listVersionRecord
	begun   bool
	header  bool // was cut off
	rest    []byte
}

func (w *idWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.begun = true
		if err := w.b.add(kindListVersion, w.version); err != nil {
			return 0, err
		}
	}
	w.rest = append(w.rest, p...)
	if !w.header {
		_, after, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		w.header, w.rest = true, after
	}
	if end := bytes.LastIndexByte(w.rest, '\n'); len(w.rest) >= idsSize && end >= 0 {
		if err := w.ids(w.rest[:end+1]); err != nil {
			return 0, err
		}
		w.rest = append([]byte(nil), w.rest[end+1:]...)
	}
	return len(p), nil
}

func (w *idWriter) ids(lines []byte) error {
	w.b.counts[kindIDs] += int64(bytes.Count(lines, []byte("\n")))
	return w.b.add(kindIDs, idsRecord{string(lines)})
}

func (w *idWriter) end() error {
	if len(w.rest) == 0 {
		return nil
	}
	return w.ids(w.rest)
}
