package docker

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	dc "github.com/ory/dockertest/v3/docker"

	"github.com/freeslot/freeslot/internal/testing/hostimage"
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

// hostTar packs the host's redis-server.
func hostTar() ([]byte, error) {
	binary := os.Getenv(redistest.BinaryEnv)
	if binary == "" {
		binary = "redis-server"
	}
	// The name matters: the same program behaves as another tool under another name.
	return hostimage.Tar(map[string]string{"redis-server": binary})
}
