package manage

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

// Bounds of a diff and of a sample.
const (
	MaxExamples = 10_000
	MaxSample   = 1000
)

// ListDiff says how a version differs from another one. Edits after their bases do not count.
type ListDiff struct {
	Version int64                  `json:"version"`
	With    int64                  `json:"with" doc:"The version that it was compared with."`
	Same    int64                  `json:"same" doc:"Entries that both have, with the same expiry."`
	Added   Differences[DiffEntry] `json:"added" doc:"Entries that only the version has."`
	Removed Differences[DiffEntry] `json:"removed" doc:"Entries that only the other one has."`
	Changed Differences[DiffEntry] `json:"changed" doc:"Entries whose expiry differs."`
	// The tags document Dropped and the rest for readers of the API.
	Dropped Differences[namelist.Change] `json:"dropped_edits" doc:"Edits behind the other version that a switch to the version takes back: a replacing import does not have older edits."`
	// The tag documents Trimmed for readers of the API.
	Trimmed bool `json:"edits_trimmed,omitzero" doc:"The log does not have all edits between the two: dropped_edits is not known."`
}

// Differences is one kind of differences.
type Differences[T any] struct {
	Count    int64 `json:"count"`
	Examples []T   `json:"examples" doc:"Some of them, as they come."`
}

// DiffEntry is an entry that differs.
type DiffEntry struct {
	namelist.Entry

	// The tag documents BeforeMS for readers of the API.
	BeforeMS int64 `json:"before_ms,omitzero" doc:"Of a changed entry its expiry in the other version; 0 is never."`
}

func (d *Differences[T]) add(one T, examples int) {
	if d.Count++; len(d.Examples) < examples {
		d.Examples = append(d.Examples, one)
	}
}

// Diff compares a version with another one; 0 means the serving version. It reads both once.
// Errors: not_found; conflict; overloaded; *build.DamageError; an error of Redis.
func (m *Manager) Diff(ctx context.Context, list string, number, with int64, examples int) (ListDiff, error) {
	d := differ{examples: examples}
	ctx, release, err := m.reading(ctx)
	if err != nil {
		return d.ListDiff, err
	}
	defer release()
	h, err := m.readable(ctx, list)
	if err != nil {
		return d.ListDiff, err
	}
	v, err := m.versionOf(ctx, h, "version", number)
	if err != nil {
		return d.ListDiff, err
	}
	other, err := m.versionOf(ctx, h, "with", with)
	if err != nil {
		return d.ListDiff, err
	}
	if v.Number == other.Number {
		return d.ListDiff, freeslot.Invalid("with", "is version %d itself, expected another one", number)
	}
	d.Version, d.With = v.Number, other.Number
	if d.Trimmed = h.Floor > other.Base && v.Base > other.Base; !d.Trimmed {
		if d.edits, err = m.editsSince(ctx, h, other, v.Base); err != nil {
			return d.ListDiff, err
		}
	}
	entries, err := m.ordered(ctx, h, v)
	if err != nil {
		return d.ListDiff, err
	}
	before, err := m.ordered(ctx, h, other)
	if err != nil {
		return d.ListDiff, err
	}
	return d.ListDiff, d.merge(entries, before, v.AtMS)
}

func (m *Manager) ordered(
	ctx context.Context, h *namelist.Head, v *namelist.Version,
) (iter.Seq2[version.Hashed, error], error) {
	server, err := m.cfg.Server(ctx, v.Server)
	if err != nil {
		return nil, err
	}
	return server.Ordered(ctx, h.Name, v, h.Seed), nil
}

// differ is a diff under way.
type differ struct {
	ListDiff

	examples int
	edits    map[string]namelist.Change // between the bases of the versions, not met yet
}

// merge goes through both versions, which are in the same order. at is when the version was ready.
func (d *differ) merge(entries, before iter.Seq2[version.Hashed, error], at int64) error {
	nextNew, stopNew := iter.Pull2(entries)
	defer stopNew()
	nextOld, stopOld := iter.Pull2(before)
	defer stopOld()
	e, newErr, isNew := nextNew()
	o, oldErr, isOld := nextOld()
	for isNew || isOld {
		if err := cmp.Or(newErr, oldErr); err != nil {
			return err
		}
		order := e.Compare(o)
		switch {
		case !isOld:
			order = -1
		case !isNew:
			order = 1
		}
		switch {
		case order < 0:
			d.Added.add(DiffEntry{Entry: e.Entry}, d.examples)
		case order > 0:
			d.Removed.add(DiffEntry{Entry: o.Entry}, d.examples)
		case e.ExpiresMS != o.ExpiresMS:
			d.Changed.add(DiffEntry{e.Entry, o.ExpiresMS}, d.examples)
		default:
			d.Same++
		}
		if order <= 0 {
			d.met(e.Entry)
			e, newErr, isNew = nextNew()
		}
		if order >= 0 {
			o, oldErr, isOld = nextOld()
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.edits)) {
		c := d.edits[id]
		if !c.Remove && (c.ExpiresMS == 0 || c.ExpiresMS > at) { // a build leaves out what has expired
			d.Dropped.add(c, d.examples)
		}
	}
	return nil
}

// met compares an entry of the version with the edit of its id.
func (d *differ) met(e namelist.Entry) {
	c, ok := d.edits[e.ID]
	if !ok {
		return
	}
	delete(d.edits, e.ID)
	if c.Remove || c.ExpiresMS != e.ExpiresMS {
		d.Dropped.add(c, d.examples)
	}
}

// Sample returns up to count random entries of a version. Errors: not_found; conflict;
// *build.DamageError; an error of Redis.
func (m *Manager) Sample(ctx context.Context, list string, number int64, count int) ([]namelist.Entry, error) {
	h, err := m.readable(ctx, list)
	if err != nil {
		return nil, err
	}
	v, err := m.versionOf(ctx, h, "version", number)
	if err != nil {
		return nil, err
	}
	server, err := m.cfg.Server(ctx, v.Server)
	if err != nil {
		return nil, err
	}
	return server.Sample(ctx, list, v, count)
}
