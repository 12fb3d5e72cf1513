package pool

import (
	"bytes"
	"context"
	"fmt"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/selection"
)

// Store reads and changes the configuration in Redis. It is safe for concurrent use.
type Store struct {
	runner *script.Runner
	keys   keys
}

// NewStore makes a store on the first cell of a system. It does no I/O.
func NewStore(first *script.Runner) *Store {
	first.Add(scripts)
	return &Store{runner: first, keys: keysOf(first.Layout())}
}

// Document is the configuration in Redis.
type Document struct {
	// Version is 0 if there is no document, or an operator removed the counter. The next change is
	// then based on 0.
	Version uint64
	// Config is nil without a document, and if Problem is set.
	Config *selection.Config
	// Paused is set with or without a document; nil if nothing is paused, and if Problem is set.
	Paused *selection.Paused
	// Generation is the generation of the counter that Version came from.
	Generation string
	// Problem says what is wrong with the document: a *freeslot.Error that names every bad field.
	Problem error
	// Entry says who made this version; nil if the history does not have it.
	Entry *ConfigEntry
	// Edited is true if the document differs from this version in the history: somebody wrote it
	// without this package.
	Edited bool
}

// Read reads the document. If something is wrong with it, Document.Problem says so; the error is
// the one from Redis.
func (s *Store) Read(ctx context.Context) (Document, error) {
	state, err := s.stored(ctx)
	if err != nil {
		return Document{}, err
	}
	doc := Document{Version: state.version, Generation: state.generation}
	doc.Config, doc.Paused, doc.Problem = interpret(&state)
	if doc.Version == 0 {
		doc.Edited = doc.Config != nil
		return doc, nil
	}
	entry, content, err := s.entry(ctx, doc.Version)
	if err != nil {
		// The document is returned without its entry: the history has its own call.
		doc.Edited = doc.Config != nil
		return doc, nil //nolint:nilerr // above
	}
	doc.Entry = &entry
	doc.Edited = doc.Config == nil || !bytes.Equal(content, Encode(doc.Config))
	return doc, nil
}

// Change describes a configuration to put in force.
type Change struct {
	// Seen is the version that the change is based on; 0 means none.
	Seen uint64
	// Config without Paused leaves what is paused as it is. An empty Paused ends all pauses.
	Config *selection.Config
	// Author and Note are for people.
	Author, Note string
	// Restores is the version that this content was copied from; 0 if it was not copied.
	Restores uint64
}

// Apply puts a valid configuration in force. Errors: as put.
func (s *Store) Apply(ctx context.Context, c Change) (Outcome, error) {
	if err := validate(c.Config).Err(); err != nil {
		return Outcome{}, err
	}
	index, err := pairs(c.Config)
	if err != nil {
		return Outcome{}, err
	}
	e := edit{
		seen: c.Seen, content: Encode(c.Config), pairs: index,
		entry: ConfigEntry{Author: c.Author, Note: c.Note, Restores: c.Restores},
	}
	if c.Config.Paused != nil {
		e.paused = []byte(c.Config.Paused.Text())
	}
	return s.put(ctx, e)
}

// At reads one version of the history. Errors: *freeslot.Error (not_found, or invalid_argument if
// this release does not accept it), or the error from Redis.
func (s *Store) At(ctx context.Context, version uint64) (ConfigEntry, *selection.Config, error) {
	entry, content, err := s.entry(ctx, version)
	if err != nil {
		return entry, nil, err
	}
	cfg, err := Decode(content)
	if err != nil {
		return entry, nil, fmt.Errorf("version %d of the configuration: %w", version, err)
	}
	cfg.Paused = pausedThen(entry.Paused)
	return entry, cfg, nil
}

// Rollback puts the content of an old version in force as a new one. seen is the version that the
// caller took for the current one.
func (s *Store) Rollback(ctx context.Context, seen, version uint64, author, note string) (Outcome, error) {
	_, cfg, err := s.At(ctx, version)
	if err != nil {
		return Outcome{}, err
	}
	return s.Apply(ctx, Change{Seen: seen, Config: cfg, Author: author, Note: note, Restores: version})
}
