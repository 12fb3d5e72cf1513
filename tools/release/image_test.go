package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	when     = time.Unix(1_700_000_000, 0).UTC()
	anywhere = platforms[0]
)

// image assembles an image of a program that is only a text.
func image(t *testing.T, p program) v1.Image {
	t.Helper()
	got, err := assemble(
		options{version: "v1", revision: "abc"}, p, anywhere, when, []byte("the program"), []byte("the terms"),
	)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// content returns the files of an image's last layer by name.
func content(t *testing.T, image v1.Image) map[string]*tar.Header {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	in, err := layers[len(layers)-1].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	found := map[string]*tar.Header{}
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = header
	}
}

// TestImage: an image has the program, the certificates, the licence, and nothing else; no user
// that is root, and labels.
func TestImage(t *testing.T) {
	t.Parallel()
	for _, p := range programs(nil) {
		got := image(t, p)
		var names []string
		for name, header := range content(t, got) {
			if header.Uid != 0 || header.Mode&0o022 != 0 || !header.ModTime.Equal(when) {
				t.Errorf("%s: %s is %+v; want it root's, for no other to write, of %v", p.name, name, header, when)
			}
			if header.Typeflag == tar.TypeReg {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		want := []string{systemBundle, "usr/local/bin/" + p.name, "usr/share/doc/freeslot/LICENSE"}
		if !slices.Equal(names, want) {
			t.Errorf("%s has %v; want %v", p.name, names, want)
		}
		config, err := got.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != user || config.Architecture != anywhere.arch || !config.Created.Equal(when) {
			t.Errorf("%s: %+v; want the user %s, %s, made %v", p.name, config, user, anywhere, when)
		}
		for label, want := range map[string]string{
			"version": "v1", "revision": "abc", "source": source, "licenses": license, "created": "2023-11-14T22:13:20Z",
		} {
			if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("%s: label %s is %q; want %q", p.name, label, got, want)
			}
		}
	}
}

// TestSameBytes: the same program gives the same archive, and an archive serves as a base.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	var archives [2][]byte
	o := options{version: "v1", out: t.TempDir()}
	if err := prepare(o.out); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.out, "images", "schedctl_v1.oci.tar")
	for i := range archives {
		if err := writeImages(
			o, "schedctl", when, []platformImage{{anywhere, image(t, programs(nil)[1])}}, io.Discard,
		); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives differ; want the same bytes")
	}

	systems, err := base(t.Context(), file, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if systems[anywhere] == nil || systems[platforms[1]] != nil {
		t.Fatalf("the base is %v; want an image for %s alone", systems, anywhere)
	}
	if err := validate.Image(systems[anywhere]); err != nil {
		t.Errorf("the image in the archive is not valid: %v; want no error", err)
	}
	older, err := base(t.Context(), filepath.Join(o.out, "images", "schedctl_v1_linux_amd64.docker.tar"), t.TempDir())
	if err != nil || older[anywhere] == nil {
		t.Errorf("the archive for docker load as a base: %v, %v; want an image for %s", older, err, anywhere)
	}
	agent := programs(systems)[2]
	if agent.tags != commonTags {
		t.Errorf(
			"on a system nodeagent has the tags %s; want %s, with the library of graphics processors", agent.tags, commonTags,
		)
	}
	got := image(t, agent)
	if layers, err := got.Layers(); err != nil || len(layers) != 2 {
		t.Errorf("%d layers, %v; want the base's and another", len(layers), err)
	}
	if files := content(t, got); files[systemBundle] != nil || files[lastBundle] == nil {
		t.Errorf("the layer has %v; want certificates where they do not replace the base's", files)
	}
}

// TestCertificates: the bundle is what Go reads.
func TestCertificates(t *testing.T) {
	t.Parallel()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificates()) {
		t.Error("no certificate was read; want those of Mozilla")
	}
}

// TestForeignFolder: a folder with other files is not emptied.
func TestForeignFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prepare(dir); err == nil {
		t.Error("prepare took a folder with another file; want an error")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("%v; want the file left", err)
	}
}
