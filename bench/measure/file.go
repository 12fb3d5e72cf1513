package measure

import (
	"io"
	"os"
	"path/filepath"

	outfile "github.com/freeslot/freeslot/internal/process/output"
)

// WriteFile replaces a file in one step, so that an interrupted run leaves the old one.
func WriteFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return outfile.Write(path, func(w io.Writer) error { _, err := w.Write(data); return err })
}
