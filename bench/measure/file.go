package measure

import (
	"os"
	"path/filepath"
)

// WriteFile writes by way of a temporary file, so that an interrupted run leaves the old one.
func WriteFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil { //nolint:gosec // meant to be read
		return err
	}
	return os.Rename(tmp, path)
}
