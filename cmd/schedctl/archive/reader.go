package archive

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/freeslot/freeslot"
)

// Reader reads a backup. It is for one goroutine.
type Reader struct {
	// Header is the first line.
	Header Header

	in    *bufio.Reader
	sum   hash.Hash
	lines int64
	over  bool
}

// NewReader reads the first line. It finds out by itself whether the input is compressed.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 64<<10), sum: sha256.New()}
	if magic, err := r.in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(r.in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForm, err)
		}
		r.in = bufio.NewReaderSize(unpacked, 64<<10)
	}
	text, err := r.line()
	if err != nil {
		if errors.Is(err, ErrCut) && r.lines == 1 && !bytes.HasPrefix(text, []byte("{")) {
			err = fmt.Errorf("%w: %w", ErrForm, err)
		}
		return nil, err
	}
	r.sum.Write(text)
	// A later version may have other fields, so this decodes what there is.
	if err := json.Unmarshal(text, &r.Header); err != nil {
		return nil, fmt.Errorf("%w: line 1: %w", ErrForm, err)
	}
	return r, r.Header.check()
}

// Next returns the next record, and io.EOF after the last one. Then all that was read is what was
// written. Errors: ErrCut, ErrDamaged; those of the input.
func (r *Reader) Next() (Record, error) {
	if r.over {
		return Record{}, io.EOF
	}
	text, err := r.line()
	if err != nil {
		return Record{}, err
	}
	var record Record
	if err := freeslot.DecodeStrict("line", text, &record); err != nil {
		return record, fmt.Errorf("%w: line %d: %w", ErrDamaged, r.lines, err)
	}
	if record.Kind == end {
		return Record{}, r.end(record.Data)
	}
	r.sum.Write(text)
	return record, nil
}

// end checks the last line, and returns io.EOF if all is right.
func (r *Reader) end(data []byte) error {
	var e ending
	if err := freeslot.DecodeStrict("end", data, &e); err != nil {
		return fmt.Errorf("%w: line %d: %w", ErrDamaged, r.lines, err)
	}
	if records, sum := r.lines-2, hex.EncodeToString(r.sum.Sum(nil)); e.Records != records || e.SHA256 != sum {
		return fmt.Errorf(
			"%w: it has %d records and sum %s, expected %d and %.64q", ErrDamaged, records, sum, e.Records, e.SHA256,
		)
	}
	switch _, err := r.in.ReadByte(); {
	case errors.Is(err, io.EOF):
		r.over = true
		return io.EOF
	case err == nil:
		return fmt.Errorf("%w: something follows line %d, which is the last one", ErrDamaged, r.lines)
	default:
		return r.failed(err)
	}
}

// line reads a line with its end.
func (r *Reader) line() ([]byte, error) {
	r.lines++
	var text []byte
	for {
		part, err := r.in.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return nil, fmt.Errorf("%w: line %d has more than %d bytes", ErrDamaged, r.lines, maxLine)
		case err == nil:
			return text, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return text, r.failed(err)
		}
	}
}

// failed returns the error of a read.
func (r *Reader) failed(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w in line %d", ErrCut, r.lines)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, new(flate.CorruptInputError)):
		return fmt.Errorf("%w: line %d: %w", ErrDamaged, r.lines, err)
	}
	return fmt.Errorf("read line %d of the backup: %w", r.lines, err)
}
