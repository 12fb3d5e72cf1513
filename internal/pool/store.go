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

// Document is the configuration as it is in Redis.
type Document struct {
	// Version is 0 when there is none, and also when an operator removed its counter:
	// what is applied next is to be based on 0 then.
	Version uint64
	// Config is nil without a document, and when Problem says what is wrong with it.
	Config *selection.Config
	// Paused is what is paused, with a document or without; nil when nothing is, and with a Problem.
	Paused *selection.Paused
	// Generation is that of the counter of Version.
	Generation string
	// Problem is a *freeslot.Error that names every bad field.
	Problem error
	// Entry says who made this version; nil when the history does not have it.
	Entry *ConfigEntry
	// Edited is true when the document is not what the history has as this version:
	// somebody wrote it past this package.
	Edited bool
}

// Read reads the document. What is wrong with it is in the document; the error is
// what Redis said.
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
		// It is told without: the history has its own call.
		doc.Edited = doc.Config != nil
		return doc, nil //nolint:nilerr // above
	}
	doc.Entry = &entry
	doc.Edited = doc.Config == nil || !bytes.Equal(content, Encode(doc.Config))
	return doc, nil
}

// Change is a configuration to put in force.
type Change struct {
	// Seen is the version that it was made from; 0 means none.
	Seen uint64
	// Config without Paused leaves what is paused as it is; an empty one ends all pauses.
	Config *selection.Config
	// Author and Note are for people.
	Author, Note string
	// Restores is the version whose content this is; 0 when it is none in particular.
	Restores uint64
}

// Apply puts a valid configuration in force; errors are those of put.
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

// At reads one version of the history. Errors: *freeslot.Error (not_found; invalid_argument
// when it is no valid configuration for this release), else what Redis said.
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

// Rollback applies the content of an old version as a new one. seen is the version that
// the caller took for the current one.
func (s *Store) Rollback(ctx context.Context, seen, version uint64, author, note string) (Outcome, error) {
	_, cfg, err := s.At(ctx, version)
	if err != nil {
		return Outcome{}, err
	}
	return s.Apply(ctx, Change{Seen: seen, Config: cfg, Author: author, Note: note, Restores: version})
}
