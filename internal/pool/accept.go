package pool

import (
	"bytes"
	"fmt"

	"github.com/freeslot/freeslot/internal/selection"
)

// Source says where the configuration in force comes from.
type Source string

// The sources.
const (
	// SourceFile: the replica's own file; there is no document in Redis.
	SourceFile Source = "file"
	// SourceRedis: the document.
	SourceRedis Source = "redis"
	// SourceHistory: the history, because the document was broken when the replica started.
	SourceHistory Source = "history"
)

// State is what is in force at a replica. The zero value is that before Start.
type State struct {
	// Config must not be changed; nil before Start. Its Version is Version.
	Config *selection.Config
	// Version is 0 with SourceFile unless something is paused.
	Version uint64
	Source  Source
	// Problem says what is wrong with the document in Redis; nil when nothing is.
	Problem error
}

// memory is a State with what the next reading is compared with.
type memory struct {
	State
	// term is the generation and the history of the data within which versions do not go back.
	term    string
	highest uint64 // of the versions accepted within term
	content []byte // of State.Config, in canonical form
	last    stored
	// seen is true once there was a reading.
	seen bool
}

// interpret reads the document, nil where there is none, and what is paused.
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

// interpretPaused returns nil where nothing is paused.
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
	return !m.seen || m.last.version != read.version || m.last.generation != read.generation || m.last.server != read.server ||
		m.last.kind != read.kind || m.last.pausedKind != read.pausedKind || !bytes.Equal(m.last.paused, read.paused) || m.last.length != read.length || !bytes.Equal(m.last.content, read.content)
}

// accept takes over a reading. It returns true when another configuration is in force
// after it. file is what is in force without a document.
func (m *memory) accept(read *stored, file *selection.Config) (changed bool) {
	m.last, m.seen = *read, true
	if term := read.generation + " " + read.server; term != m.term {
		m.term, m.highest = term, 0
	}
	cfg, paused, problem := interpret(read)
	if problem == nil && read.version < m.highest {
		problem = fmt.Errorf("the version in Redis went back from %d to %d: somebody changed its counter", m.highest, read.version)
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

// put makes cfg the one in force. The same content under another version is another
// configuration: replicas tell each other by the version which one they go by.
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
