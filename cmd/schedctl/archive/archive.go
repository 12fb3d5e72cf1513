// Package archive is the form of a backup: lines of JSON, and a checksum in the last line.
//
// The first line is a [Header]. Each further line is {"kind": ..., "data": ...}. The last one has
// the kind "end", with the number of lines between and the SHA-256 of all bytes before it. The
// whole may be compressed by gzip. docs/backup.md describes the kinds.
package archive

import (
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// Format names the form in the first line.
	Format = "freeslot-backup"
	// Version is raised with every change of the form that an older program cannot read.
	Version = 1
	// MaxLine bounds a line, so that a file that is no backup cannot fill the memory.
	MaxLine = 16 << 20
)

// maxLine is MaxLine, except in tests.
var maxLine = MaxLine

// Errors of reading. The message adds the line.
var (
	// ErrForm is returned for a file that is no backup.
	ErrForm = errors.New("this is no backup")
	// ErrVersion is returned for a backup of a later version than Version.
	ErrVersion = errors.New("a later release made this backup")
	// ErrCut is returned for a backup without its last line.
	ErrCut = errors.New("the backup is cut off")
	// ErrDamaged is returned for a backup whose bytes are not the ones that were written.
	ErrDamaged = errors.New("the backup is damaged")
)

// Header is the first line.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// ID tells backups apart.
	ID string `json:"id"`
	// AtMS is Redis' time when the backup began, in milliseconds since 1970.
	AtMS int64 `json:"at_ms"`
	// Release is the version of the program that wrote it.
	Release string `json:"release"`
}

// check refuses a header of another form, or of a later version.
func (h *Header) check() error {
	switch {
	case h.Format != Format:
		return fmt.Errorf("%w: format is %.64q, expected %s", ErrForm, h.Format, Format)
	case h.Version > Version:
		return fmt.Errorf(
			"%w: version is %d (written by %.64q), expected at most %d: use the schedctl of that release", ErrVersion,
			h.Version, h.Release, Version,
		)
	case h.Version < 1 || h.ID == "" || h.AtMS <= 0:
		return fmt.Errorf("%w: the first line has no version, id or at_ms", ErrForm)
	}
	return nil
}

// Record is a line between the first and the last one.
type Record struct {
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// end is the kind of the last line.
const end = "end"

// ending is the content of the last line.
type ending struct {
	Records int64  `json:"records"`
	SHA256  string `json:"sha256"`
}
