package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	repository = "freeslot/"
	source     = "https://github.com/freeslot/freeslot"
	license    = "Apache-2.0"
	// user owns nothing in an image. A number, because Kubernetes compares it with runAsNonRoot.
	user = "65532:65532"

	systemBundle = "etc/ssl/certs/ca-certificates.crt"
	// lastBundle is where Go looks for certificates when a system has no other file of them.
	lastBundle = "etc/ssl/cert.pem"
)

// program is one image.
type program struct {
	name, description string
	tags              string
	arguments         []string
	// bases are the systems below the program; nil for none.
	bases map[platform]v1.Image
}

// programs returns the images of a release. Without a system nodeagent is static.
func programs(systems map[platform]v1.Image) []program {
	agent := program{
		"nodeagent", "freeslot's agent of a node", staticTags, []string{"--config", "/etc/freeslot/nodeagent.yaml"}, systems,
	}
	if systems != nil {
		agent.tags = commonTags
	}
	return []program{
		{"scheduler", "a replica of the freeslot scheduler", staticTags, []string{"serve"}, nil},
		{"schedctl", "freeslot's command line", staticTags, nil, nil},
		agent,
	}
}

// file is a file of a layer.
type file struct {
	name    string
	mode    int64
	content []byte
}

// platformImage is an image for one platform.
type platformImage struct {
	platform platform
	image    v1.Image
}

// makeImage builds a program and puts it into an image. It also writes the program's SBOM.
func makeImage(ctx context.Context, o options, p program, on platform, when time.Time) (v1.Image, error) {
	built, err := build(ctx, o, p.name, on, p.tags)
	if err != nil {
		return nil, err
	}
	list := filepath.Join(o.out, "sbom", fmt.Sprintf("%s_%s_%s.cdx.json", p.name, o.version, on.fileName()))
	if err := sbom(ctx, o, built, list); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(built)
	if err != nil {
		return nil, err
	}
	terms, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	return assemble(o, p, on, when, content, terms)
}

// assemble puts a program on its base, as an OCI image.
func assemble(o options, p program, on platform, when time.Time, content, terms []byte) (v1.Image, error) {
	base, roots := p.bases[on], lastBundle
	if base == nil {
		base, roots = empty.Image, systemBundle
	}
	layer, err := pack(when, []file{
		{"usr/local/bin/" + p.name, 0o755, content},
		{"usr/share/doc/freeslot/LICENSE", 0o644, terms},
		{roots, 0o644, certificates()},
	})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(base, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: when}, CreatedBy: "make image", Comment: p.name + " " + o.version,
	}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = on.os, on.arch, v1.Time{Time: when}
	c := &config.Config
	c.User, c.WorkingDir, c.StopSignal = user, "/", "SIGTERM"
	c.Entrypoint, c.Cmd = []string{"/usr/local/bin/" + p.name}, p.arguments
	if len(c.Env) == 0 {
		c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	}
	// Labels of the base would say what the base is.
	c.Labels = map[string]string{
		"org.opencontainers.image.title":       p.name,
		"org.opencontainers.image.description": p.description,
		"org.opencontainers.image.version":     o.version,
		"org.opencontainers.image.revision":    o.revision,
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.licenses":    license,
		"org.opencontainers.image.created":     when.Format(time.RFC3339),
	}
	return mutate.ConfigFile(image, config)
}

// certificates returns the roots of Mozilla, from the version of the module that go.mod has, so
// that machines with other certificates make the same image. It leaves out those that hold only for
// older certificates, which a file of certificates cannot say.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}

// pack returns a layer with the files, root's, and the folders above them.
func pack(when time.Time, files []file) (v1.Layer, error) {
	var out bytes.Buffer
	if err := writeTar(&out, when, files); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(out.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
}

// writeTar writes files in the order of their names. Equal files give equal bytes.
func writeTar(out io.Writer, when time.Time, files []file) error {
	files = slices.Clone(files)
	folders := map[string]bool{".": true}
	for _, f := range slices.Clone(files) {
		for dir := path.Dir(f.name); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
			files = append(files, file{name: dir + "/", mode: 0o755})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	w := tar.NewWriter(out)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: when,
			Format: tar.FormatUSTAR,
		}
		if f.content == nil && f.name[len(f.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeImages writes an image for all platforms as one OCI archive, for registries, and an archive
// for each platform, for docker load.
func writeImages(o options, program string, when time.Time, images []platformImage, log io.Writer) error {
	tag, err := name.NewTag(repository + program + ":" + o.version)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i.image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: i.platform.os, Architecture: i.platform.arch},
		}})
		to := filepath.Join(o.out, "images", fmt.Sprintf("%s_%s_%s.docker.tar", program, o.version, i.platform.fileName()))
		if err := tarball.WriteToFile(to, tag, i.image); err != nil {
			return err
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	size, err := largest(images)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(log, "%s %s %.1f MB\n", tag, digest, float64(size)/1e6)
	return writeLayout(filepath.Join(o.out, "images", fmt.Sprintf("%s_%s.oci.tar", program, o.version)), index, tag, when)
}

// largest returns how many bytes a machine fetches for an image: of its largest platform.
func largest(images []platformImage) (most int64, err error) {
	for _, i := range images {
		manifest, err := i.image.Manifest()
		if err != nil {
			return 0, err
		}
		size := manifest.Config.Size
		for _, layer := range manifest.Layers {
			size += layer.Size
		}
		most = max(most, size)
	}
	return most, nil
}

// writeLayout writes an index and all that belongs to it as an OCI archive.
func writeLayout(to string, index v1.ImageIndex, tag name.Tag, when time.Time) error {
	dir, err := os.MkdirTemp("", "freeslot-layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// containerd and docker load name an image by the first annotation, other tools by the second.
	if err := out.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          "docker.io/" + tag.RepositoryStr() + ":" + tag.TagStr(),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	})); err != nil {
		return err
	}
	files, err := readFolder(dir)
	if err != nil {
		return err
	}
	return createFile(to, func(w io.Writer) error { return writeTar(w, when, files) })
}
