package faults

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// stamp is the linker's flag for the version that a build tells.
const stamp = "-X github.com/freeslot/freeslot/internal/process/version.stamped="

// buildCommit builds the programs of a commit, and the peers of this suite with the packages of
// that commit, so that one checker reads the logs of both. It returns their folder.
func buildCommit(t *testing.T, commit string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*buildLimit) // three builds
	defer cancel()
	root := filepath.Dir(filepath.Dir(logs))
	archive, err := exec.CommandContext(ctx, "git", "-C", root, "archive", "--format=tar.gz", commit).Output()
	if err != nil {
		t.Fatalf("git archive %s: %v; expected a commit of this repository", commit, err)
	}
	// Always the same folders, so that the compiler finds what it made before.
	work := filepath.Join(filepath.Dir(logs), "commit")
	source, folder := filepath.Join(work, "source"), filepath.Join(work, "bin")
	if err := errors.Join(os.RemoveAll(source), unpack(archive, source)); err != nil {
		t.Fatal(err)
	}
	if err := bringSuite(root, source); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		goBuild(ctx, source, folder, []string{"-ldflags", stamp + commit, "./cmd/scheduler", "./cmd/nodeagent", "./cmd/schedctl"}),
		buildPeers(ctx, source, folder),
		goBuild(ctx, root, programs, []string{"./cmd/schedctl"}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// bringSuite replaces the Go files of this suite in the tree of a commit.
func bringSuite(root, source string) error {
	const suite = "test/faults"
	return filepath.WalkDir(filepath.Join(root, suite), func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		to := filepath.Join(source, strings.TrimPrefix(name, root))
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o600))
	})
}

// userRoles are the users of Redis, by the first letter of the names of their programs.
var userRoles = map[byte]string{'r': "replica", 'n': "agent", 'h': "lock", 'p': "registry", 'c': "registry", 'l': "list-reader"}

const userPassword = "secret"

// setUsers gives the users of Redis the rights that a schedctl knows.
func (f *fleet) setUsers(schedctl string, flags ...string) {
	f.t.Helper()
	password := filepath.Join(f.folder, "password")
	if err := os.WriteFile(password, []byte(userPassword+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	for _, role := range slices.Compact(slices.Sorted(maps.Values(userRoles))) {
		args := []string{
			"acl", "--role", role, "--user", role, "--password-file", password, "--apply", "--redis-url", f.redis.Process().URL(),
			"--key-prefix", prefix, "--cells", strconv.Itoa(f.cfg.cells),
		}
		if out, err := runProgram(f.t.Context(), schedctl, append(args, flags...)...); err != nil {
			f.t.Fatalf("%s acl --role %s: %v\n%s", schedctl, role, err, out)
		}
	}
}

// schedctl asks a replica, as an operator, again while the machine is too busy for an answer.
func (f *fleet) schedctl(program, replica string, args ...string) {
	f.t.Helper()
	all := append([]string{"--server", "http://" + f.replicas[replica], "--token", operatorToken}, args...)
	var out string
	var err error
	if redistest.Await(func(ctx context.Context) bool {
		out, err = runProgram(ctx, program, all...)
		return err == nil || !strings.Contains(out, string(freeslot.CodeUnavailable))
	}) != nil || err != nil {
		f.t.Errorf("%s %s at %s: %v\n%s", program, strings.Join(args, " "), replica, err, out)
	}
}

// runProgram runs a program to its end, and returns what it printed.
func runProgram(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = ownEnvironment()
	out, err := cmd.CombinedOutput()
	return string(out), err
}
