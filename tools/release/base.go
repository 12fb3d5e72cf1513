package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// base returns the system below nodeagent by platform, from an archive, or from a registry if there
// is no such file. It returns nil for an empty name. The images of an archive are read from the
// folder dir later, so the caller keeps it.
func base(ctx context.Context, from, dir string) (map[platform]v1.Image, error) {
	if from == "" {
		return nil, nil
	}
	if _, err := os.Stat(from); err == nil {
		return baseFromArchive(from, dir)
	}
	ref, err := name.ParseReference(from)
	if err != nil {
		return nil, err
	}
	found := map[platform]v1.Image{}
	for _, p := range platforms {
		image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
			remote.WithPlatform(v1.Platform{OS: p.os, Architecture: p.arch}))
		if err != nil {
			return nil, err
		}
		found[p] = image
	}
	return found, nil
}

// baseFromArchive unpacks an OCI archive, or one of docker save, into dir.
func baseFromArchive(from, dir string) (map[platform]v1.Image, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unpack(from, dir); err != nil {
		return nil, err
	}
	found := map[platform]v1.Image{}
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
		index, err := layout.ImageIndexFromPath(dir)
		if err == nil {
			err = collect(index, found)
		}
		if err != nil {
			return nil, err
		}
	} else {
		image, err := tarball.ImageFromPath(from, nil)
		if err != nil {
			return nil, fmt.Errorf("want an OCI archive, or an archive of one image by docker save: %w", err)
		}
		if err := add(image, found); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("it has an image for none of %v", platforms)
	}
	return found, nil
}

// collect adds the images of an index, and of the indexes in it, whose platform is one of ours.
func collect(index v1.ImageIndex, found map[platform]v1.Image) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		if m.MediaType.IsIndex() {
			inner, err := index.ImageIndex(m.Digest)
			if err == nil {
				err = collect(inner, found)
			}
			if err != nil {
				return err
			}
			continue
		}
		image, err := index.Image(m.Digest)
		if err == nil {
			err = add(image, found)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds an image if its platform is one of ours.
func add(image v1.Image, found map[platform]v1.Image) error {
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	for _, p := range platforms {
		if config.OS == p.os && config.Architecture == p.arch {
			found[p] = image
		}
	}
	return nil
}

// unpack writes the files of a tar archive into a folder, and none outside of it.
func unpack(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		out, err := root.Create(header.Name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, r); err != nil {
			return errors.Join(err, out.Close())
		}
		if err := out.Close(); err != nil {
			return err
		}
	}
}
