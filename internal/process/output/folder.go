package output

import (
	"errors"
	"os"
)

// TryFolder makes a folder, and tries to make a file in it. Otherwise a folder that cannot be
// written would only be noticed when its content is needed, and is not there.
func TryFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".freeslot-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
