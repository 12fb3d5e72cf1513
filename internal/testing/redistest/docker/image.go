package docker

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	dc "github.com/ory/dockertest/v3/docker"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// ImageEnv is the environment variable that names an image with a redis-server in its PATH.
const ImageEnv = "FREESLOT_TEST_REDIS_IMAGE"

const hostImage = "freeslot-test/redis"

// image returns the repository and tag to run.
func image(client *dc.Client) (repository, tag string, err error) {
	if name := os.Getenv(ImageEnv); name != "" {
		repository, tag = dc.ParseRepositoryTag(name)
		return repository, tag, nil
	}
	content, err := hostTar()
	if err != nil {
		return "", "", fmt.Errorf("make an image of the host's redis-server (or name one in %s): %w", ImageEnv, err)
	}
	// The tag is derived from the content, so an image of an earlier run serves again and one of
	// another version does not.
	tag = fmt.Sprintf("%x", sha256.Sum256(content))[:16]
	_, err = client.InspectImage(hostImage + ":" + tag)
	if !errors.Is(err, dc.ErrNoSuchImage) {
		return hostImage, tag, err
	}
	err = client.ImportImage(dc.ImportImageOptions{
		Repository: hostImage, Tag: tag, Source: "-", InputStream: bytes.NewReader(content),
		OutputStream: new(bytes.Buffer),
	})
	return hostImage, tag, err
}

// hostTar packs the host's redis-server and the libraries with which it is linked. Equal files give
// equal bytes.
func hostTar() ([]byte, error) {
	binary := os.Getenv(redistest.BinaryEnv)
	if binary == "" {
		binary = "redis-server"
	}
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, fmt.Errorf("%w; install it with `make deps`", err)
	}
	libs, err := libraries(path)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"data/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	// The name matters: the same program behaves as another tool under another name.
	if err := addFile(w, path, "usr/bin/redis-server"); err != nil {
		return nil, err
	}
	for _, lib := range libs {
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

// libraries returns the absolute paths that ldd prints, the dynamic linker's included; none for a
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
	slices.Sort(libs)
	return slices.Compact(libs), nil
}
