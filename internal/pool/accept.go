package pool

import (
	"bytes"
	"fmt"

	"github.com/freeslot/freeslot/internal/selection"
)

// Source names where the configuration in force comes from.
type Source string

// The sources.
const (
	// SourceFile is the replica's own file: Redis has no document.
	SourceFile Source = "file"
	// SourceRedis is the document in Redis.
	SourceRedis Source = "redis"
	// SourceHistory is the history: the document was broken when the replica started.
	SourceHistory Source = "history"
)

// State describes the configuration in force at a replica. The zero value is the state before
// Start.
type State struct {
	// Config must not be changed; nil before Start. Its Version is Version.
	Config *selection.Config
	// Version is 0 with SourceFile, unless something is paused.
	Version uint64
	Source  Source
	// Problem says what is wrong with the document in Redis; nil if nothing is wrong.
	Problem error
}

// memory holds the State, and what the next reading is compared with.
type memory struct {
	State
	// term joins the generation and the history of the data. Within one term versions do not go
	// back.
	term    string
	highest uint64 // the highest version accepted within term
	content []byte // State.Config in canonical form
	last    stored
	// seen is true once something was read.
	seen bool
}

// interpret decodes the document and what is paused. Each is nil if there is none.
func interpret(state *stored) (cfg *selection.Config, paused *selection.Paused, err error) {
	if cfg, err = interpretDocument(state); err != nil {
		return nil, nil, err
	}
	if paused, err = interpretPaused(state); err != nil {
		return nil, nil, err
	}
	if cfg != nil {
		cfg.Paused = paused
	}
	return cfg, paused, nil
}

// interpretPaused returns nil if nothing is paused.
func interpretPaused(state *stored) (*selection.Paused, error) {
	switch state.pausedKind {
	case "", "none":
		return nil, nil
	case "string":
		return DecodePaused(state.paused)
	default:
		return nil, refuse(pausedPath, "is a %s in Redis, expected a string", state.pausedKind)
	}
}

func interpretDocument(state *stored) (*selection.Config, error) {
	switch {
	case state.kind == "none":
		return nil, nil
	case state.kind != "string":
		return nil, refuse(root, "is a %s in Redis, expected a string", state.kind)
	case state.content == nil:
		return nil, refuse(root, "has %d bytes in Redis, expected at most %d", state.length, maxBytes)
	}
	cfg, err := Decode(state.content)
	if err == nil && cfg.Paused != nil {
		err = refuse(pausedPath, "is in the document in Redis, expected under a key of its own")
	}
	return cfg, err
}

// news reports whether a reading differs from the one before.
func (m *memory) news(read *stored) bool {
	return !m.seen || m.last.version != read.version || m.last.generation != read.generation ||
		m.last.server != read.server ||
		m.last.kind != read.kind || m.last.pausedKind != read.pausedKind || !bytes.Equal(m.last.paused, read.paused) ||
		m.last.length != read.length || !bytes.Equal(m.last.content, read.content)
}

// accept takes over a reading, and reports whether it brought another configuration into force.
// file is in force while there is no document.
func (m *memory) accept(read *stored, file *selection.Config) (changed bool) {
	m.last, m.seen = *read, true
	if term := read.generation + " " + read.server; term != m.term {
		m.term, m.highest = term, 0
	}
	cfg, paused, problem := interpret(read)
	if problem == nil && read.version < m.highest {
		problem = fmt.Errorf(
			"the version in Redis went back from %d to %d: somebody changed its counter", m.highest, read.version,
		)
	}
	if m.Problem = problem; problem != nil {
		return false
	}
	m.highest = read.version
	switch {
	case cfg != nil:
		return m.put(cfg, read.version, read.generation, SourceRedis)
	case paused.Empty():
		return m.put(file, 0, "", SourceFile)
	default:
		with := *file
		with.Paused = paused
		return m.put(&with, read.version, read.generation, SourceFile)
	}
}

// put puts cfg in force. The same content under another version counts as another configuration:
// replicas tell each other by version which configuration they use.
func (m *memory) put(cfg *selection.Config, version uint64, generation string, source Source) (changed bool) {
	content := append(Encode(cfg), cfg.Paused.Text()...)
	same := m.Config != nil && m.Version == version && m.Config.Generation == generation && bytes.Equal(content, m.content)
	m.Version, m.Source = version, source
	if same {
		return false
	}
	stamped := *cfg
	stamped.Version, stamped.Generation = version, generation
	m.Config, m.content = &stamped, content
	return true
}
