// Package output writes the files that users name on a command line.
package output

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is the number of symbolic links in a row that are followed, the same as Linux'.
const maxLinks = 40

// File is a file that is being written. Close replaces a regular file in one step; until then the
// content is in a file beside it, and the old file stays as it was. Anything else, such as a
// device, a pipe or /dev/stderr, is opened and written at once. It is not safe for concurrent use.
type File struct {
	name string   // as the user gave it
	file *os.File // the file being written
	out  *bufio.Writer
	// target is the file that file replaces if regular is true. Otherwise file is the target itself.
	target  string
	regular bool
}

// Create begins a file. It follows symbolic links, also if their target does not exist yet. A new
// file has the mode that the umask leaves. An existing file keeps its mode and, if the process may
// set it, its owner. Create fails for an empty name, for a directory, for a file that may not be
// written, and for a folder in which no file can be made. It waits for a reader of a named pipe.
func Create(name string) (*File, error) { return create(name, 0o666) }

// CreatePrivate is Create, but only the owner may read and write a new file.
func CreatePrivate(name string) (*File, error) { return create(name, 0o600) }

// create begins a file. A new one has this mode, less the umask.
func create(name string, mode fs.FileMode) (*File, error) {
	if name == "" {
		return nil, errors.New("the name is empty, expected a file to write")
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%s is a folder, expected a file to write", name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case strings.HasSuffix(name, string(filepath.Separator)):
		return nil, fmt.Errorf("%s ends like a folder, expected a file to write", name)
	}
	target, opened, linkErr := follow(name)
	if linkErr != nil {
		return nil, linkErr
	}
	if opened || err == nil && !info.Mode().IsRegular() {
		return direct(name)
	}
	if err == nil {
		// A process that may not write a file must not replace it, though the folder would allow
		// that.
		probe, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		if err := probe.Close(); err != nil {
			return nil, err
		}
		mode = 0o600 // until it has the other file's mode
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	beside := filepath.Join(filepath.Dir(target), ".freeslot-"+hex.EncodeToString(random[:]))
	file, createErr := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if createErr != nil {
		return nil, fmt.Errorf("make a file beside %s, which replaces it once it is whole: %w", name, createErr)
	}
	f := &File{name: name, file: file, out: bufio.NewWriterSize(file, 64<<10), target: target, regular: true}
	if err == nil {
		keepOwner(file, info)
		if err := file.Chmod(info.Mode().Perm()); err != nil {
			f.Discard()
			return nil, err
		}
	}
	return f, nil
}

// direct opens a file that cannot be replaced. A descriptor of this process may stand at the end of
// a file that others write, too, so nothing of theirs may be overwritten.
func direct(name string) (*File, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	return &File{name: name, file: file, out: bufio.NewWriterSize(file, 64<<10)}, nil
}

// follow returns the file that a name stands for. opened is true if the name refers to an open
// file, such as /dev/fd/3, which has no name of its own.
func follow(name string) (target string, opened bool, err error) {
	for range maxLinks {
		info, err := os.Lstat(name)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return name, false, nil
		}
		if folder, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil && strings.HasPrefix(folder+"/", "/proc/") {
			return "", true, nil
		}
		next, err := os.Readlink(name)
		if err != nil {
			return "", false, err
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(name), next)
		}
		name = next
	}
	return "", false, fmt.Errorf("%s goes by more than %d symbolic links", name, maxLinks)
}

// Regular reports whether the file is a regular one, which Close puts in its place.
func (f *File) Regular() bool { return f.regular }

func (f *File) Write(p []byte) (int, error) { return f.out.Write(p) }

// Close ends a complete file. After an error a regular file is as it was.
func (f *File) Close() error {
	err := f.out.Flush()
	if err == nil && f.Regular() {
		err = f.file.Sync() // a power loss must not leave an empty file under the name
	}
	if err != nil {
		f.Discard()
		return err
	}
	if err = f.file.Close(); err == nil && f.Regular() {
		err = os.Rename(f.file.Name(), f.target)
	}
	if err != nil && f.Regular() {
		_ = os.Remove(f.file.Name())
	}
	return err
}

// Discard ends an incomplete file: a regular one is as it was. After Close it does nothing.
func (f *File) Discard() {
	if f.file.Close() == nil && f.Regular() {
		_ = os.Remove(f.file.Name())
	}
}

// Write makes a file with the output of write. A regular file is as it was unless write returns
// nil.
func Write(name string, write func(io.Writer) error) error {
	f, err := Create(name)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := write(f); err != nil {
		return err
	}
	return f.Close()
}
