package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Bounds of a document.
const (
	MaxDocument     = 1 << 20 // bytes of one version
	documentBytes   = 10 << 20
	documentKept    = 100
	maxDocumentLine = 256 // bytes of an author or a note
	metaSuffix      = ":meta"
)

// DocumentVersion describes a version of a document.
type DocumentVersion struct {
	// Version is 1 for the first version ever; 0 means that there is no document.
	Version int64
	// Author and Note are for people.
	Author, Note string
	// At is the time of writing, by Redis' clock.
	At time.Time
	// Restores is the version whose content a rollback wrote again; otherwise 0.
	Restores int64
	// Bytes is the length of the content.
	Bytes int
}

// Document is a named document. A zero Version means that there is none.
type Document struct {
	DocumentVersion
	Name string
	// Content is UTF-8 text of up to MaxDocument bytes.
	Content string
}

// same reports whether two readings are of one version. A Redis that lost its data starts counting
// anew, at another time.
func (d *Document) same(version int64, at time.Time) bool {
	return d.Version == version && d.At.Equal(at)
}

// documentPut is a version to write.
type documentPut struct {
	name                  string
	seen                  int64
	content, author, note string
	restores              int64
}

func (p *documentPut) validate() error {
	var found freeslot.FieldErrors
	found.Add(freeslot.ValidateName("name", p.name))
	if p.seen < 0 {
		found.Addf("version", "is %d, expected the version that the change was made from, 0 for a new document", p.seen)
	}
	switch {
	case len(p.content) > MaxDocument:
		found.Addf("content", "has %d bytes, expected at most %d", len(p.content), MaxDocument)
	case !utf8.ValidString(p.content):
		found.Addf("content", "is not UTF-8")
	}
	line := func(field, s string) {
		if len(s) > maxDocumentLine || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			found.Addf(field, "is no line of at most %d bytes", maxDocumentLine)
		}
	}
	line("author", p.author)
	line("note", p.note)
	return found.Err()
}

// documentFields lists the fields of the record, as decodeDocument reads them.
var documentFields = []string{"version", "at", "author", "note", "restores", "content"}

// document reads the newest version. Version is 0 if there is none.
func (c *conn) document(ctx context.Context, name string) (d Document, err error) {
	runner, k := c.of(name)
	values, err := runner.Do(
		ctx, "registry_config", runner.B().Hmget().Key(k.config(name)).Field(documentFields...).Build(),
	).ToArray()
	if err != nil {
		return d, fmt.Errorf("read document %s: %w", name, c.explain(err, script.RoleRegistry))
	}
	d.Name = name
	if values[5].IsNil() {
		return d, nil
	}
	text := make([]string, len(values))
	for i := range values {
		text[i], _ = values[i].ToString() // nil: an operator removed the field
	}
	d.Version, d.At = number(text[0]), time.UnixMilli(number(text[1]))
	d.Author, d.Note, d.Restores, d.Content, d.Bytes = text[2], text[3], number(text[4]), text[5], len(text[5])
	return d, nil
}

// documentStamp returns what identifies a version, without the content: 0 if there is no document.
func (c *conn) documentStamp(ctx context.Context, name string) (version int64, at time.Time, err error) {
	runner, k := c.of(name)
	values, err := runner.Do(
		ctx, "registry_config_version", runner.B().Hmget().Key(k.config(name)).Field("version", "at").Build(),
	).ToArray()
	if err != nil {
		return 0, at, fmt.Errorf("version of document %s: %w", name, c.explain(err, script.RoleRegistry))
	}
	if values[1].IsNil() { // a deleted document keeps only its version
		return 0, at, nil
	}
	v, _ := values[0].ToString()
	ms, _ := values[1].ToString()
	return number(v), time.UnixMilli(number(ms)), nil
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// putDocument runs config_put.lua. Errors: a *freeslot.Error (invalid_argument, conflict,
// overloaded), or an error of Redis.
func (c *conn) putDocument(ctx context.Context, p documentPut) (version int64, err error) {
	if err := p.validate(); err != nil {
		return 0, err
	}
	runner, k := c.of(p.name)
	args := []string{
		p.name, k.configChange(p.name), strconv.FormatInt(p.seen, 10), p.content, p.author, p.note,
		strconv.FormatInt(p.restores, 10), strconv.Itoa(documentKept), strconv.Itoa(documentBytes),
	}
	values, err := runner.Call(ctx, scripts["config_put"], k.documentKeys(p.name), args).AsIntSlice()
	return documentAnswer("write", p.name, p.seen, values, c.explain(err, script.RoleReplica))
}

// deleteDocument runs config_delete.lua. It fails as putDocument does, and with not_found.
func (c *conn) deleteDocument(ctx context.Context, name string, seen int64) error {
	runner, k := c.of(name)
	args := []string{name, k.configChange(name), strconv.FormatInt(seen, 10)}
	values, err := runner.Call(ctx, scripts["config_delete"], k.documentKeys(name), args).AsIntSlice()
	_, err = documentAnswer("delete", name, seen, values, err)
	return err
}

// documentAnswer decodes what the scripts return.
func documentAnswer(what, name string, seen int64, values []int64, err error) (version int64, _ error) {
	var refused *rueidis.RedisError
	switch {
	case errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "OOM "):
		return 0, errFull
	case err != nil:
		return 0, fmt.Errorf("%s document %s: %w", what, name, err)
	case len(values) == 1 && values[0] == codeGone:
		return 0, noDocument(name)
	case len(values) < 2:
		return 0, fmt.Errorf("%s document %s: %d values of redis, expected 2", what, name, len(values))
	}
	switch version = values[1]; values[0] {
	case codeDone, codeSame:
		return version, nil
	case codeHolder:
		is := fmt.Sprintf("is at version %d", version)
		if version == 0 {
			is = "does not exist"
		}
		return version, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "version",
			Message: fmt.Sprintf("document %s %s, the change was made from version %d", name, is, seen),
		}
	default:
		return 0, fmt.Errorf("%s document %s: code %d of redis is unknown", what, name, values[0])
	}
}

func noDocument(name string) error {
	return &freeslot.Error{Code: freeslot.CodeNotFound, Field: "name", Message: "there is no document " + name}
}

// Documents returns a page of documents in the order of their names: up to limit, from the first
// name behind after. Each has only Name, Version and At.
func (s *Store) Documents(ctx context.Context, after string, limit int) (out []Document, err error) {
	var names []string
	for _, runner := range s.c.runners {
		found, err := members(ctx, runner, "registry_configs", keys{runner.Layout()}.configs())
		if err != nil {
			return nil, fmt.Errorf("list documents: %w", err)
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	names = slices.Compact(names) // SSCAN may bring one twice
	from, found := slices.BinarySearch(names, after)
	if found {
		from++
	}
	for _, name := range names[from:min(from+limit, len(names))] {
		d := Document{Name: name}
		if d.Version, d.At, err = s.c.documentStamp(ctx, name); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// Document reads a document: the newest version for 0, otherwise one from its history. Errors: a
// *freeslot.Error (invalid_argument, not_found), or an error of Redis.
func (s *Store) Document(ctx context.Context, name string, version int64) (d Document, err error) {
	if err := freeslot.ValidateName("name", name); err != nil {
		return d, err
	}
	if version == 0 {
		if d, err = s.c.document(ctx, name); err == nil && d.Version == 0 {
			err = noDocument(name)
		}
		return d, err
	}
	runner, k := s.c.of(name)
	field := strconv.FormatInt(version, 10)
	values, err := runner.Do(
		ctx, "registry_config_history", runner.B().Hmget().Key(k.configHistory(name)).Field(field, field+metaSuffix).Build(),
	).ToArray()
	if err != nil {
		return d, fmt.Errorf("version %d of document %s: %w", version, name, err)
	}
	content, err := values[0].ToString()
	if err != nil {
		return d, &freeslot.Error{
			Code: freeslot.CodeNotFound, Field: "version",
			Message: fmt.Sprintf(
				"document %s has no version %d, or none any more: the last %d are kept, and at most %d bytes", name, version,
				documentKept, documentBytes,
			),
		}
	}
	meta, _ := values[1].ToString()
	return Document{DocumentVersion: decodeVersion(version, meta), Name: name, Content: content}, nil
}

// DocumentHistory returns the versions that are kept, newest first. It fails as Document does.
func (s *Store) DocumentHistory(ctx context.Context, name string) (out []DocumentVersion, err error) {
	if err := freeslot.ValidateName("name", name); err != nil {
		return nil, err
	}
	runner, k := s.c.of(name)
	fields, err := runner.Do(
		ctx, "registry_config_history", runner.B().Hkeys().Key(k.configHistory(name)).Build(),
	).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("history of document %s: %w", name, err)
	}
	fields = slices.DeleteFunc(fields, func(f string) bool { return !strings.HasSuffix(f, metaSuffix) })
	if len(fields) == 0 {
		return nil, noDocument(name)
	}
	metas, err := runner.Do(
		ctx, "registry_config_history", runner.B().Hmget().Key(k.configHistory(name)).Field(fields...).Build(),
	).ToArray()
	if err != nil {
		return nil, fmt.Errorf("history of document %s: %w", name, err)
	}
	for i, m := range metas {
		if text, err := m.ToString(); err == nil { // nil: it was removed meanwhile
			out = append(out, decodeVersion(number(strings.TrimSuffix(fields[i], metaSuffix)), text))
		}
	}
	slices.SortFunc(out, func(a, b DocumentVersion) int { return int(b.Version - a.Version) })
	return out, nil
}

func decodeVersion(version int64, meta string) DocumentVersion {
	var m struct {
		Author   string `json:"author"`
		Note     string `json:"note"`
		AtMS     int64  `json:"at_ms"`
		Restores int64  `json:"restores"`
		Bytes    int    `json:"bytes"`
	}
	_ = json.Unmarshal([]byte(meta), &m) // what an operator broke is left out
	return DocumentVersion{
		Version: version, Author: m.Author, Note: m.Note, At: time.UnixMilli(m.AtMS), Restores: m.Restores, Bytes: m.Bytes,
	}
}

// PutDocument writes a new version. seen is the version that it was made from, 0 for a new
// document. If the content is the newest already, no new version is made. Errors: a *freeslot.Error
// (invalid_argument, conflict with the current version, overloaded), or an error of Redis.
func (s *Store) PutDocument(
	ctx context.Context, name string, seen int64, content, author, note string,
) (version int64, err error) {
	return s.c.putDocument(ctx, documentPut{name: name, seen: seen, content: content, author: author, note: note})
}

// RollbackDocument writes the content of an old version as the newest one. It fails as PutDocument
// does, and with not_found.
func (s *Store) RollbackDocument(
	ctx context.Context, name string, seen, restore int64, author, note string,
) (version int64, err error) {
	if restore < 1 {
		return 0, freeslot.Invalid("restore", "is %d, expected a version of the history", restore)
	}
	old, err := s.Document(ctx, name, restore)
	if err != nil {
		return 0, err
	}
	return s.c.putDocument(
		ctx, documentPut{name: name, seen: seen, content: old.Content, author: author, note: note, restores: restore},
	)
}

// DeleteDocument removes a document with its history. It fails as PutDocument does, and with
// not_found.
func (s *Store) DeleteDocument(ctx context.Context, name string, seen int64) error {
	if err := freeslot.ValidateName("name", name); err != nil {
		return err
	}
	return s.c.deleteDocument(ctx, name, seen)
}
