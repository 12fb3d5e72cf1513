package faults

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// previousRelease is the source of the release that runs beside this build while a system is
// upgraded; scripts/release-archive.sh made it.
const previousRelease = "testdata/release.tar.gz"

// mostRelease bounds what an archive holds when it is unpacked.
const mostRelease = 64 << 20

// buildRelease builds the programs of the previous release, once for each archive, and returns
// their folder.
func buildRelease(t *testing.T) string {
	t.Helper()
	archive, err := os.ReadFile(previousRelease)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(archive)
	folder := filepath.Join(filepath.Dir(logs), "release", hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	// Built beside its place, so that a build that was cut off is no release.
	work, err := os.MkdirTemp(mustMake(t, filepath.Dir(folder)), "build-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	source, programs := filepath.Join(work, "source"), filepath.Join(work, "bin")
	if err := unpack(archive, source); err != nil {
		t.Fatalf("%s: %v; want no error", previousRelease, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), buildLimit)
	defer cancel()
	if err := build(ctx, source, programs); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(programs, folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

func mustMake(t *testing.T, folder string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// unpack writes the files of an archive into folder.
func unpack(archive []byte, folder string) error {
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	files := tar.NewReader(io.LimitReader(plain, mostRelease))
	for {
		head, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case head.Typeflag == tar.TypeDir || head.Typeflag == tar.TypeXGlobalHeader: // as git archive writes them
			continue
		case head.Typeflag != tar.TypeReg || !filepath.IsLocal(head.Name):
			return fmt.Errorf("%q is no file below it", head.Name)
		}
		name := filepath.Join(folder, filepath.FromSlash(head.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		data, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
}
