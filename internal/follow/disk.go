package follow

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
)

// fileLimit bounds the size of a file that is read.
const fileLimit = 1 << 30

// Disk keeps the newest state of each log in a folder, a file for each log, so that a process can
// start while Redis is away. The files are only a fallback. T is a state. Changed and Read are safe
// for concurrent use. The exported fields must not change any more once Disk is in use.
type Disk[T any] struct {
	Dir string
	// Prefix is the prefix of the logs' keys in Redis: the same name under another prefix has
	// another file.
	Prefix string
	// Feature and Noun name the files and the events of Log: "registry" and "service".
	Feature, Noun string
	// Every is the least time between two writes for one log.
	Every time.Duration
	// Encode writes the content of a file.
	Encode func(to io.Writer, name string, state T) error
	// Same reports whether two states make the same file; nil if that never happens.
	Same func(a, b T) bool
	Log  *zap.Logger

	mu      sync.Mutex
	pending map[string]T // guarded by mu; not written yet
}

// Changed takes a new state, which Run writes later.
func (d *Disk[T]) Changed(name string, state T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending == nil {
		d.pending = make(map[string]T)
	}
	d.pending[name] = state
}

// Run writes what has changed until ctx ends, and then once more.
func (d *Disk[T]) Run(ctx context.Context) {
	ticker := time.NewTicker(d.Every)
	defer ticker.Stop()
	written, failed := make(map[string]T), false
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		d.mu.Lock()
		pending := d.pending
		d.pending = nil
		d.mu.Unlock()
		for name, state := range pending {
			if was, ok := written[name]; ok && d.Same(was, state) {
				continue
			}
			err := d.write(name, state)
			if err != nil && !failed { // the next ones would fail alike
				d.Log.Warn(d.Feature+".snapshot_not_written", zap.String(d.Noun, name), zap.Error(err))
			}
			if failed = err != nil; !failed && d.Same != nil {
				written[name] = state
			}
		}
	}
}

// file returns the name of a log's file. It is made of a hash of prefix and name, since names may
// differ in ways that a file system ignores.
func (d *Disk[T]) file(name string) string {
	sum := sha256.Sum256([]byte(d.Prefix + "\x00" + name))
	return filepath.Join(d.Dir, d.Feature+"-"+hex.EncodeToString(sum[:16])+".snapshot")
}

// write replaces a log's file in one step.
func (d *Disk[T]) write(name string, state T) error {
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.Dir, "."+d.Feature+"-*") // 0600
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(f, 1<<16)
	err = d.Encode(buffered, name, state)
	if err = errors.Join(err, buffered.Flush(), f.Close()); err == nil {
		err = os.Rename(f.Name(), d.file(name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Read calls decode with the content of a log's file, if there is one, and reports whether decode
// took it. A file that cannot be used is logged.
func (d *Disk[T]) Read(name string, decode func(data []byte) error) bool {
	file := d.file(name)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil && info.Size() > fileLimit {
		err = fmt.Errorf("it has %d bytes, expected at most %d", info.Size(), fileLimit)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(file)
	}
	if err == nil {
		err = decode(data)
	}
	if err != nil {
		d.Log.Warn(d.Feature+".snapshot_ignored", zap.String("file", file), zap.String(d.Noun, name), zap.Error(err))
	}
	return err == nil
}
