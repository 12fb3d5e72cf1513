package archive

import (
	"bytes"
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
	w.records++
	return w.line(written{kind, data})
}

// Close writes the last line: without it the backup counts as cut off. It leaves out open.
func (w *Writer) Close() error {
	return w.line(written{end, ending{w.records, hex.EncodeToString(w.sum.Sum(nil))}})
}

// written is a Record before its data is JSON.
type written struct {
	Kind string `json:"kind"`
	Data any    `json:"data"`
}

func (w *Writer) line(v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // a "<" would take six bytes, and a payload could grow beyond its bound
	if err := enc.Encode(v); err != nil {
		return err
	}
	if text.Len() > maxLine {
		return fmt.Errorf("a line of the backup has %d bytes, expected at most %d", text.Len(), maxLine)
	}
	w.sum.Write(text.Bytes())
	_, err := w.out.Write(text.Bytes())
	return err
}
