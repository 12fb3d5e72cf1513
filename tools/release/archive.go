package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// archive packs the programs of a platform, with what one needs to install them by hand.
func archive(ctx context.Context, o options, on platform, when time.Time) error {
	top := fmt.Sprintf("freeslot_%s_%s", o.version, on.fileName())
	files := []file{{top + "/ca-certificates.crt", 0o644, certificates()}}
	for program, tags := range map[string]string{
		"scheduler": staticTags, "schedctl": staticTags, "nodeagent": commonTags,
	} {
		built, err := build(ctx, o, program, on, tags)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(built)
		if err != nil {
			return err
		}
		files = append(files, file{top + "/bin/" + program, 0o755, content})
	}
	examples, err := filepath.Glob(filepath.Join(o.root, "deploy", "*"))
	if err != nil {
		return err
	}
	for _, name := range append(examples, filepath.Join(o.root, "LICENSE"), filepath.Join(o.root, "CHANGELOG.md")) {
		if info, err := os.Stat(name); err != nil || info.IsDir() {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(o.root, name)
		if err != nil {
			return err
		}
		files = append(files, file{top + "/" + filepath.ToSlash(relative), 0o644, content})
	}
	return createFile(filepath.Join(o.out, top+".tar.gz"), func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(writeTar(z, when, files), z.Close())
	})
}

// checksums writes the SHA-256 of each file of a release into checksums.txt, for sha256sum --check.
func checksums(out string) error {
	files, err := readFolder(out)
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	var list bytes.Buffer
	for _, f := range files {
		if !strings.HasPrefix(f.name, ".") {
			_, _ = fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(f.content), f.name)
		}
	}
	return os.WriteFile(filepath.Join(out, "checksums.txt"), list.Bytes(), 0o644)
}

// readFolder returns the files of a folder, with names below it.
func readFolder(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files = append(files, file{filepath.ToSlash(relative), 0o644, content})
		return err
	})
	return files, err
}

// createFile makes a file by write.
func createFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
