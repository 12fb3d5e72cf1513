package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
)

// Writer writes a backup. It is for one goroutine.
type Writer struct {
	out     io.Writer
	sum     hash.Hash
	records int64
}

// NewWriter writes the first line. It sets Format and Version of the header.
func NewWriter(out io.Writer, h Header) (*Writer, error) {
	h.Format, h.Version = Format, Version
	w := &Writer{out: out, sum: sha256.New()}
	return w, w.line(h)
}

// Write adds a record. data becomes JSON.
func (w *Writer) Write(kind string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	w.records++
	return w.line(Record{kind, text})
}

// Close writes the last line: without it the backup counts as cut off. It leaves out open.
func (w *Writer) Close() error {
	text, err := json.Marshal(ending{w.records, hex.EncodeToString(w.sum.Sum(nil))})
	if err != nil {
		return err
	}
	return w.line(Record{end, text})
}

func (w *Writer) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if text = append(text, '\n'); len(text) > maxLine {
		return fmt.Errorf("a line of the backup has %d bytes, expected at most %d", len(text), maxLine)
	}
	w.sum.Write(text)
	_, err = w.out.Write(text)
	return err
}
