// Package compose tests the images of a release and deploy/compose, in containers of an engine of
// this machine.
package compose

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/hostimage"
)

const (
	version = "v0.0.0-test"
	// hostSystem is an image with what the nodes' commands need.
	hostSystem = "freeslot-test/system:host"
	// most is what a machine may have to fetch for the scheduler.
	most = 25_000_000
)

var programs = []string{"scheduler", "schedctl", "nodeagent"}

// command runs a program in a folder, and returns its standard output. It fails the test if the
// program fails.
func command(t *testing.T, dir string, input []byte, name string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, input, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v; want no error", name, strings.Join(args, " "), err)
	}
	return out
}

// try is command, but returns the error, with what the program wrote on standard error.
func try(t *testing.T, dir string, input []byte, name string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	var out, report bytes.Buffer
	c.Dir, c.Stdin, c.Stdout, c.Stderr = dir, bytes.NewReader(input), &out, &report
	if err := c.Run(); err != nil {
		return out.String(), errors.Join(err, errors.New(out.String()+report.String()))
	}
	return out.String(), nil
}

// load imports an image with programs of this machine, and returns its name.
func load(t *testing.T, name string, programs map[string]string, more ...string) string {
	t.Helper()
	content, err := hostimage.Tar(programs, more...)
	if err != nil {
		t.Fatal(err)
	}
	name = "freeslot-test/" + name + ":host"
	command(t, ".", content, "docker", "import", "--change", `ENV PATH=/usr/bin`, "-", name)
	return name
}

// releases makes a release twice, and returns the folder of one.
func releases(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// nodeagent needs these parts of glibc, and no program has them.
	var glibc []string
	for _, lib := range []string{"libdl.so.2", "libpthread.so.0"} {
		found, err := filepath.Glob("/lib/*-linux-gnu/" + lib)
		if err != nil {
			t.Fatal(err)
		}
		glibc = append(glibc, found...)
	}
	load(t, "system", map[string]string{"sh": "sh", "wc": "wc", "sleep": "sleep"}, glibc...)
	base := filepath.Join(dir, "base.tar")
	command(t, ".", nil, "docker", "save", "-o", base, hostSystem)
	program := filepath.Join(dir, "release")
	command(t, "../../tools/release", nil, "go", "build", "-o", program, ".")
	var outs [2]string
	for i := range outs {
		outs[i] = filepath.Join(dir, fmt.Sprint(i))
		t.Log(command(
			t, "../..", nil, program, "-out", outs[i], "-version", version, "-time", "1700000000", "-node-base", base,
			"-archives",
		))
	}
	command(t, ".", nil, "diff", "-r", outs[0], outs[1])
	return outs[0]
}

// checkRelease looks at what a release consists of.
func checkRelease(t *testing.T, dist string) {
	t.Helper()
	command(t, dist, nil, "sha256sum", "--check", "--strict", "checksums.txt")
	sums, err := os.ReadFile(filepath.Join(dist, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Count(string(sums), "\n")
	files := 0
	if err := filepath.WalkDir(dist, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), ".") && d.Name() != "checksums.txt" {
			files++
		}
		return err
	}); err != nil || listed != files {
		t.Errorf("%d checksums for %d files, %v; want one for each", listed, files, err)
	}
	scheduler := filepath.Join(dist, "images", "scheduler_"+version+"_linux_amd64.docker.tar")
	if info, err := os.Stat(scheduler); err != nil || info.Size() > most {
		t.Errorf("%s: %v, %v; want at most %d bytes", scheduler, info, err, most)
	} else {
		t.Logf("image of the scheduler: %d bytes", info.Size())
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		dir := t.TempDir()
		name := "freeslot_" + version + "_linux_" + arch
		command(t, dir, nil, "tar", "-xzf", filepath.Join(dist, name+".tar.gz"))
		for program, static := range map[string]bool{"scheduler": true, "schedctl": true, "nodeagent": false} {
			f, err := elf.Open(filepath.Join(dir, name, "bin", program))
			if err != nil {
				t.Fatal(err)
			}
			interpreted := f.Section(".interp") != nil
			if f.Machine != machine || interpreted == static {
				t.Errorf(
					"%s for %s: %s, linked dynamically: %t; want %s, %t", program, arch, f.Machine, interpreted, machine, !static,
				)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, file := range []string{"LICENSE", "deploy/scheduler.service", "deploy/nodeagent.example.yaml"} {
			if _, err := os.Stat(filepath.Join(dir, name, file)); err != nil {
				t.Errorf("%v; want the file in the archive", err)
			}
		}
	}
	for _, program := range programs {
		list, err := os.ReadFile(filepath.Join(dist, "sbom", program+"_"+version+"_linux_amd64.cdx.json"))
		if err != nil || !bytes.Contains(list, []byte("pkg:golang/github.com/redis/rueidis@")) {
			t.Errorf("the SBOM of %s: %v; want one with the modules of the program", program, err)
		}
	}
}

// checkDockerfile builds deploy/Dockerfile in an archive, as its comment says, and runs the
// programs.
func checkDockerfile(t *testing.T, dist string) {
	t.Helper()
	dir := t.TempDir()
	name := "freeslot_" + version + "_linux_amd64"
	command(t, dir, nil, "tar", "-xzf", filepath.Join(dist, name+".tar.gz"))
	for _, program := range programs {
		image := "freeslot-test/" + program + ":dockerfile"
		command(t, filepath.Join(dir, name), nil, "docker", "build", "-q", "-f", "deploy/Dockerfile", "--target", program,
			"--build-arg", "NODE_BASE="+hostSystem, "-t", image, ".")
		out := command(t, ".", nil, "docker", "run", "--rm", "--read-only", image, "--version")
		if !strings.HasPrefix(out, program+" "+version) {
			t.Errorf("%s of the Dockerfile says %q; want its version %s", program, out, version)
		}
	}
}
