package source

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"

	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

// chunk is how many bytes of an upload are written at a time.
const chunk = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// upload is a writer whose bytes become an upload. It bounds them.
type upload struct {
	imports           Imports
	id                string
	maxRows, maxBytes int64

	buf         []byte
	rows, bytes int64
	open        bool // the last line has no end
	sum         hash.Hash
}

func newUpload(imports Imports, id string, c *Config) *upload {
	return &upload{imports: imports, id: id, maxRows: c.MaxRows, maxBytes: c.MaxBytes, sum: sha256.New()}
}

// Write takes any number of bytes. It keeps less than a chunk in memory.
func (u *upload) Write(p []byte) (int, error) {
	if len(p) > 0 {
		u.rows += int64(bytes.Count(p, []byte{'\n'}))
		u.open = p[len(p)-1] != '\n'
	}
	_, _ = u.sum.Write(p)
	u.buf = append(u.buf, p...)
	if u.rows > u.maxRows {
		return 0, fmt.Errorf("it has more than max_rows (%d) lines", u.maxRows)
	}
	if u.bytes+int64(len(u.buf)) > u.maxBytes {
		return 0, fmt.Errorf("it has more than max_bytes (%d)", u.maxBytes)
	}
	for len(u.buf) >= chunk {
		if err := u.send(chunk); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (u *upload) send(n int) error {
	part := u.buf[:n]
	if _, err := u.imports.Chunk(u.id, u.bytes, part, crc32.Checksum(part, castagnoli)); err != nil {
		return err
	}
	u.bytes += int64(n)
	u.buf = append(u.buf[:0], u.buf[n:]...)
	return nil
}

// end writes the rest, and returns the digest of all bytes.
func (u *upload) end() (sum string, err error) {
	if u.open {
		u.rows++
	}
	if len(u.buf) > 0 {
		err = u.send(len(u.buf))
	}
	return hex.EncodeToString(u.sum.Sum(nil)), err
}

// importRequest returns the upload that a run opens.
func importRequest(list string, a *Assignment, c *Config) manage.Upload {
	_, format := c.read()
	header := version.HeaderAuto
	if c.Kind == KindPostgres || c.Kind == KindRedis {
		header = version.HeaderNo // its first row may be an id such as id or name
	}
	return manage.Upload{List: list, Format: format, Mode: manage.Replace, Header: header, By: a.by()}
}
