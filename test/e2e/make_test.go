package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeValkey answers --version as Valkey does.
const fakeValkey = "#!/bin/sh\necho 'Server v=%s sha=00000000:0 malloc=libc bits=64 build=0'\n"

// TestMakeRunWithoutRedis: if no Redis can be installed, make run goes on with the embedded
// stand-in. It runs the programs under test and does not build others.
func TestMakeRunWithoutRedis(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	for name, to := range map[string]string{"bin": programs, "scripts": filepath.Join(root, "scripts")} {
		if err := os.Symlink(to, filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, []string{"PATH=" + pathWithout(t, "redis-server", "valkey-server", "apt-get")},
		"make", "--no-print-directory", "-C", work, "-f", filepath.Join(root, "Makefile"), "--old-file=build",
		"run", "RUN_ARGS=--exit --listen 127.0.0.1:0 --redis-port 0 --dir "+t.TempDir())
	if code := p.wait(); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	_, table, found := strings.Cut(p.stdout.String(), "warning: no redis-server is installed")
	if !found {
		t.Fatalf("no warning of the stand-in:\n%s", p.stdout.String())
	}
	checkTable(t, table)
}

// TestDepsRedis: what redisserver would start is not installed again.
func TestDepsRedis(t *testing.T) {
	t.Parallel()
	bare := pathWithout(t, "redis-server", "valkey-server", "apt-get")
	for name, c := range map[string]struct {
		version string // of the valkey-server; empty without one
		code    int
	}{
		"valkey":     {version: "8.1.3"},
		"old valkey": {version: "6.0.0", code: 1},
		"nothing":    {code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := bare
			if c.version != "" {
				dir := t.TempDir()
				script := strings.Replace(fakeValkey, "%s", c.version, 1)
				if err := os.WriteFile(filepath.Join(dir, "valkey-server"), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
				path = dir + string(filepath.ListSeparator) + bare
			}
			if stdout, stderr, code := run(t, []string{"PATH=" + path}, "../../scripts/deps.sh", "redis"); code != c.code {
				t.Errorf("exit status %d, expected %d\n%s%s", code, c.code, stdout, stderr)
			}
		})
	}
}

// TestMakeBench: micro-benchmarks alone, so that their output can be compared and no tracked file
// changes.
func TestMakeBench(t *testing.T) {
	t.Parallel()
	for target, load := range map[string]bool{"bench-micro": false, "bench-e2e": true} {
		stdout, stderr, code := run(t, nil, "make", "-C", "../..", "--dry-run", target)
		if code != 0 || strings.Contains(stdout, "run -C bench ./e2e") != load {
			t.Errorf("make %s: exit status %d, expected the load: %t\n%s%s", target, code, load, stdout, stderr)
		}
	}
}

// pathWithout is a PATH with all programs but these.
func pathWithout(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue // PATH may name folders that are not there
		}
		for _, e := range entries {
			if slices.Contains(names, e.Name()) {
				continue
			}
			err := os.Symlink(filepath.Join(folder, e.Name()), filepath.Join(dir, e.Name()))
			if err != nil && !os.IsExist(err) { // the first in PATH wins
				t.Fatal(err)
			}
		}
	}
	return dir
}
