package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// maxFileBytes bounds the files that a configuration names: secrets and certificates.
const maxFileBytes = 1 << 20

// ReadFile reads up to 1 MiB of a text file that a configuration names, without its byte order
// mark. The error continues a sentence that begins with the key.
func ReadFile(name string) ([]byte, error) {
	var data []byte
	f, err := os.Open(name)
	if err == nil {
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, maxFileBytes))
	}
	if err != nil {
		return nil, fmt.Errorf("is %q, which cannot be read: %w", name, fsCause(err))
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), nil
}

func fsCause(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err
	}
	return err
}

// Unreadable reports whether an error of [Load] is only about files that could not be read. The
// same configuration may be valid once they are there. If the configuration file itself cannot be
// read, Unreadable returns false.
func Unreadable(err error) bool {
	problems, ok := errors.AsType[Problems](err)
	if !ok || len(problems) == 0 {
		return false
	}
	if slices.ContainsFunc(
		problems, func(p Problem) bool { return p.Path == "" && strings.HasPrefix(p.Message, "cannot read ") },
	) {
		return true
	}
	// Only the message distinguishes such a problem from others of the same key, such as a file
	// without a certificate. An empty file may be about to be written.
	return !slices.ContainsFunc(problems, func(p Problem) bool {
		return !strings.HasSuffix(p.Path, "_file") || !strings.Contains(p.Message, "cannot be read: ") &&
			!strings.Contains(p.Message, ", which is empty")
	})
}
