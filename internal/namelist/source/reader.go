package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/freeslot/freeslot/internal/namelist/version"
)

// The kinds of sources.
const (
	KindHTTP     = "http"
	KindPostgres = "postgres"
	KindRedis    = "redis"
	KindFile     = "file"
)

// Config describes a source. What does not belong to its kind is empty.
type Config struct {
	Kind string
	// URL is the address: of the file, for KindHTTP; of the server, for KindPostgres and KindRedis.
	URL string
	// PasswordFile holds the server's password, or for KindHTTP a bearer token. CAFile holds
	// authorities in PEM, in place of the system's. Both are read for each run.
	PasswordFile, CAFile string
	// Query is the statement of KindPostgres: its first column is the id, and the second one, if there
	// is one, the expiry.
	Query string
	// Key is the key of KindRedis: a set, hash or zset. With Expiry the values of the hash, or the
	// scores of the zset, are the expiries of its fields or members.
	Key    string
	Expiry bool
	// Path is the file of KindFile.
	Path string
	// Format is the form of the file of KindHTTP and KindFile.
	Format version.Format
	// Timeout bounds a run without the build. MaxRows and MaxBytes bound what it reads.
	Timeout           time.Duration
	MaxRows, MaxBytes int64
}

// address tells one address from another, without saying it.
func (c *Config) address() string {
	sum := sha256.Sum256([]byte(c.Kind + " " + c.URL + " " + c.Path))
	return hex.EncodeToString(sum[:8])
}

// errUnchanged is returned by a reader whose source has what the mark says.
var errUnchanged = errors.New("the source has not changed")

// reader reads all lines of a source into out, in the form of an import. etag is what the last run
// that was served has returned, empty for none. It returns the new one, empty if the source has
// none, or errUnchanged if it is the same.
type reader func(ctx context.Context, etag string, out io.Writer) (newETag string, err error)

// read returns the reader of a source, and the form of its lines.
func (c *Config) read() (reader, version.Format) {
	switch c.Kind {
	case KindHTTP:
		return c.readHTTP, c.Format
	case KindPostgres:
		return c.readPostgres, version.CSV
	case KindRedis:
		return c.readRedis, version.CSV
	case KindFile:
		return c.readFile, c.Format
	}
	return func(context.Context, string, io.Writer) (string, error) {
		return "", fmt.Errorf("a source has kind %q, expected http, postgres, redis or file", c.Kind)
	}, version.CSV
}

// unpack returns the content of a file that may be compressed by gzip.
func unpack(file io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(file)
	if head, _ := buffered.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) { // an error comes again with the first read
		return buffered, nil
	}
	content, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("it begins as gzip and is none: %w", err)
	}
	return content, nil
}

// appendRow appends a line for an id from a database. A line break would make two ids of one, so it
// becomes a character that no id may have: the line is refused, and counted.
func appendRow(dst, id []byte, expiry string) []byte {
	quoted := false
	for _, b := range id {
		quoted = quoted || b == '"' || b == ','
	}
	if quoted {
		dst = append(dst, '"')
	}
	for _, b := range id {
		switch b {
		case '\n', '\r':
			b = 0
		case '"':
			dst = append(dst, '"')
		}
		dst = append(dst, b)
	}
	if quoted {
		dst = append(dst, '"')
	}
	if expiry != "" {
		dst = append(append(dst, ','), expiry...)
	}
	return append(dst, '\n')
}
