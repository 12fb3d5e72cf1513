package script

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts so; nothing is protected by it
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// common are the includes that every feature can use.
//
//go:embed lib
var common embed.FS

const (
	// folder holds a feature's scripts; libFolder below it holds the parts that scripts include.
	folder    = "script"
	libFolder = "lib"
	suffix    = ".lua"

	// publishCall is the form in which scripts publish an event of their cell. On a cluster
	// SPUBLISH replaces PUBLISH: the channel is in the slot of the script's keys.
	publishCall = "'PUBLISH', channel, "
)

var includeLine = regexp.MustCompile(`(?m)^ *-- include (\S+)$`)

// Script is one operation: its source with its includes. It is immutable.
type Script struct {
	name           string
	plain, sharded source
}

// source is a text and its hash in Redis.
type source struct{ text, sha string }

// New makes a script from its whole text.
func New(name, text string) *Script {
	return &Script{
		name: name, plain: newSource(text), sharded: newSource(strings.ReplaceAll(text, publishCall, "'S"+publishCall[1:])),
	}
}

func newSource(text string) source {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return source{text: text, sha: hex.EncodeToString(sum[:])}
}

// Name returns the script's name, which is its label in metrics.
func (s *Script) Name() string { return s.name }

// Text returns what Redis runs in cells whose layout is sharded, or is not.
func (s *Script) Text(sharded bool) string { return s.of(sharded).text }

// Hash returns the SHA-1 of Text, which is its name in Redis.
func (s *Script) Hash(sharded bool) string { return s.of(sharded).sha }

func (s *Script) of(sharded bool) *source {
	if sharded {
		return &s.sharded
	}
	return &s.plain
}

// Set holds the scripts of one feature by their names.
type Set map[string]*Script

// MustLoad reads the scripts of a feature: all files <name>.lua in the folder script of files and
// in the folders below it, except script/lib, which has the includes. A line "-- include
// lib/clock.lua" is replaced by the file of that name, of the feature or of this package. MustLoad
// panics if a file is missing or a name is used twice: the build is broken.
func MustLoad(files fs.FS) Set {
	set := make(Set)
	err := fs.WalkDir(files, folder, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && at == path.Join(folder, libFolder):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(at, suffix):
			return nil
		}
		name := strings.TrimSuffix(path.Base(at), suffix)
		if set[name] != nil {
			return fmt.Errorf("two scripts are called %s", name)
		}
		text, err := Source(files, at)
		set[name] = New(name, text)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("script: embedded scripts: %v", err))
	}
	return set
}

// Names returns the names of the scripts by their hashes. Redis' statistics use the hashes.
func (s Set) Names() map[string]string {
	names := make(map[string]string)
	for name, script := range s {
		names[script.plain.sha], names[script.sharded.sha] = name, name
	}
	return names
}

// Texts returns all texts, so that a test can load them as a replica does.
func (s Set) Texts() []string {
	var out []string
	for _, script := range s {
		out = append(out, script.plain.text, script.sharded.text)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Source returns the file with its includes and theirs. A feature's own file has precedence over
// one of this package.
func Source(files fs.FS, at string) (string, error) {
	text, err := fs.ReadFile(files, at)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = common.ReadFile(strings.TrimPrefix(at, folder+"/"))
	}
	if err != nil {
		return "", err
	}
	var failed error
	whole := includeLine.ReplaceAllStringFunc(string(text), func(line string) string {
		part, err := Source(files, path.Join(folder, includeLine.FindStringSubmatch(line)[1]))
		failed = errors.Join(failed, err)
		return part
	})
	return whole, failed
}
