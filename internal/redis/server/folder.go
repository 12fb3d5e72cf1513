package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const lockFile = "redisproc.lock"

// folder is a data folder that this process holds locked.
type folder struct {
	path string
	temp bool
	lock *os.File
}

// openFolder makes the folder when it is missing, checks that it can be written to, and locks it.
// An empty path makes a temporary folder.
func openFolder(path string) (*folder, error) {
	f := &folder{temp: path == ""}
	var err error
	if f.temp {
		path, err = os.MkdirTemp("", "freeslot-redis-")
	} else if path, err = filepath.Abs(path); err == nil {
		err = os.MkdirAll(path, 0o750)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDir, err)
	}
	f.path = path
	if err := f.acquire(); err != nil {
		return nil, err
	}
	return f, nil
}

// acquire fails for an unwritable folder. The lock is advisory and ends with this process; the
// child does not inherit it (close-on-exec).
func (f *folder) acquire() error {
	lock, err := os.OpenFile(filepath.Join(f.path, lockFile), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDir, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("%w: %s is in use by another server; stop it, or choose another folder", ErrDir, f.path)
		}
		return fmt.Errorf("%w: lock %s: %w", ErrDir, f.path, err)
	}
	f.lock = lock
	return nil
}

// close unlocks the folder, and removes it when it is temporary.
func (f *folder) close() error {
	err := f.lock.Close()
	if f.temp {
		err = errors.Join(err, os.RemoveAll(f.path))
	}
	return err
}
