package version

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// record is one entry in a partition file:
//
//	0  1  length of the id, minus 1
//	1  1  flags
//	2  n  id
//	.  8  expiry in ms, little endian, with flagExpires
type record struct {
	id      string
	expires int64 // 0 means never
	remove  bool
}

const (
	flagExpires = 1 << iota
	flagRemove
)

func (r *record) append(dst []byte) []byte {
	flags := byte(0)
	if r.expires != 0 {
		flags |= flagExpires
	}
	if r.remove {
		flags |= flagRemove
	}
	dst = append(append(dst, byte(len(r.id)-1), flags), r.id...)
	if r.expires != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.expires))
	}
	return dst
}

// cut reads the first record of data, and returns the rest. ok is false if the record is
// incomplete.
func cut(data string) (r record, rest string, ok bool) {
	if len(data) < 2 {
		return r, data, false
	}
	flags, end := data[1], 3+int(data[0])
	size := end
	if flags&flagExpires != 0 {
		size += 8
	}
	if len(data) < size {
		return r, data, false
	}
	if flags&flagExpires != 0 {
		r.expires = int64(binary.LittleEndian.Uint64([]byte(data[end:size])))
	}
	r.id, r.remove = data[2:end], flags&flagRemove != 0
	return r, data[size:], true
}

// pieceBytes is the size of the part of a file that is in memory at once.
const pieceBytes = 1 << 20

// readRecords calls yield for each record of a file; a file that does not exist has none.
func readRecords(path string, yield func(record) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	buf, kept := make([]byte, pieceBytes), 0
	for {
		n, err := io.ReadFull(f, buf[kept:])
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return err
		}
		rest := string(buf[:kept+n])
		for {
			r, after, ok := cut(rest)
			if !ok {
				break
			}
			if err := yield(r); err != nil {
				return err
			}
			rest = after
		}
		switch kept = copy(buf, rest); {
		case end && kept > 0:
			return fmt.Errorf("%s ends within a record", filepath.Base(path))
		case end:
			return nil
		}
	}
}
