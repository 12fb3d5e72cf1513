package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// platform is what a program runs on, as Go names it.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// fileName is the form of a platform in names of files.
func (p platform) fileName() string { return p.os + "_" + p.arch }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}}

const (
	versionVariable = "github.com/freeslot/freeslot/internal/process/version.stamped"
	// grpcnotrace leaves out templates, with which a program is twice as large.
	commonTags = "grpcnotrace"
	// staticTags leave out the library of graphics processors, the only thing that needs glibc.
	staticTags = commonTags + ",nogpu"
)

// build makes a program without a C compiler, and returns its file.
func build(ctx context.Context, o options, program string, p platform, tags string) (file string, err error) {
	file = filepath.Join(o.out, "build", p.fileName(), tags, program)
	c := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-tags", tags,
		"-ldflags", "-s -w -X "+versionVariable+"="+o.version, "-o", file, "./cmd/"+program)
	c.Dir = o.root
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0")
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("go build %s: %w", program, err)
	}
	return file, nil
}

// sbom writes a CycloneDX document of the modules in a program.
func sbom(ctx context.Context, o options, file, out string) error {
	c := exec.CommandContext(ctx, "go", "tool", "-modfile="+filepath.Join(o.root, "tools/release/go.mod"),
		"cyclonedx-gomod",
		"bin", "-json", "-std", "-noserial", "-notimestamp", "-version", o.version, "-output", out, file)
	c.Dir = filepath.Join(o.root, "tools/release")
	if output, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("cyclonedx-gomod: %w: %s", err, output)
	}
	return nil
}
