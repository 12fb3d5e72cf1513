// Package hostimage packs programs of this machine for containers, so that their tests need no
// registry.
package hostimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Tar returns the root of a file system with programs, the libraries that they are linked with, and
// more files of this machine under their own paths. The keys of programs are their names in
// /usr/bin, the values their names or paths here. /data and /tmp are for everyone to write. Equal
// files give equal bytes.
func Tar(programs map[string]string, more ...string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"data/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	libs := slices.Clone(more)
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		path, err := exec.LookPath(programs[name])
		if err != nil {
			return nil, fmt.Errorf("%w; install it with `make deps`", err)
		}
		if err := addFile(w, path, "usr/bin/"+name); err != nil {
			return nil, err
		}
		linked, err := libraries(path)
		if err != nil {
			return nil, err
		}
		libs = append(libs, linked...)
	}
	slices.Sort(libs)
	for _, lib := range slices.Compact(libs) {
		if err := addFile(w, lib, strings.TrimPrefix(lib, "/")); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}

func addFile(w *tar.Writer, path, name string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// libraries returns the absolute paths that ldd prints, including the dynamic linker; none for a
// static binary.
func libraries(path string) ([]string, error) {
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		if bytes.Contains(out, []byte("not a dynamic executable")) {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", path, err, bytes.TrimSpace(out))
	}
	var libs []string
	for line := range strings.Lines(string(out)) {
		for _, field := range strings.Fields(line) {
			if strings.HasPrefix(field, "/") {
				libs = append(libs, field)
			}
		}
	}
	return libs, nil
}
