package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// Encode is the JSON of a results file.
func Encode(results any) ([]byte, error) {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// Decode reads a results file into results, named name in errors. It refuses fields that it does not know:
// a report of half a file would look complete.
func Decode(name string, data []byte, results any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(results); err != nil {
		return fmt.Errorf("results %s: %w", name, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("results %s: something follows the results", name)
	}
	return nil
}
