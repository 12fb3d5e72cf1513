package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// readFile reads a file of the replica. One that changes meanwhile is not taken: half of it may be
// new.
func (c *Config) readFile(ctx context.Context, etag string, out io.Writer) (string, error) {
	folder, err := os.OpenRoot(filepath.Dir(c.Path)) // no symbolic link leads out of it
	if err != nil {
		return "", err
	}
	defer func() { _ = folder.Close() }()
	file, err := folder.Open(filepath.Base(c.Path))
	if err != nil {
		return "", err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !before.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", c.Path)
	}
	is := stampOf(before)
	if is == etag {
		return is, errUnchanged
	}
	content, err := unpack(&limited{ctx, file})
	if err == nil {
		_, err = io.Copy(out, content)
	}
	if err != nil {
		return "", err
	}
	after, err := folder.Stat(filepath.Base(c.Path))
	if err != nil {
		return "", err
	}
	if stampOf(after) != is {
		return "", errors.New("the file changed while it was read")
	}
	return is, nil
}

// stampOf changes when a file is written.
func stampOf(info os.FileInfo) string {
	return strconv.FormatInt(info.ModTime().UnixNano(), 36) + "-" + strconv.FormatInt(info.Size(), 36)
}

// limited ends a read with its context.
type limited struct {
	ctx  context.Context
	from io.Reader
}

func (l *limited) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	return l.from.Read(p)
}
