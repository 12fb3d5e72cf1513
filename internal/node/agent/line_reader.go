package agent

import (
	"bufio"
	"bytes"
	"errors"
)

// errLineTooLong is returned by lines for a line above their limit; the next call goes on
// within that line.
var errLineTooLong = errors.New("a line is too long")

// lines reads lines of at most limit bytes, however long the whole is.
type lines struct {
	r     *bufio.Reader
	limit int
	// cr says that CR ends a line too, as LF and CR LF do.
	cr bool
	// heard is called for each whole line; nil is nothing.
	heard func()
	// skipLF is true after a CR: an LF now belongs to it.
	skipLF bool
	buf    []byte
}

// next returns a line without its end, valid until the next call. With io.EOF it is what
// stands behind the last end.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		// One byte at least, then what has come with it: a line is not to wait for another.
		if _, err := l.r.Peek(1); err != nil {
			return l.buf, err
		}
		chunk, _ := l.r.Peek(l.r.Buffered())
		if l.skipLF {
			l.skipLF = false
			if chunk[0] == '\n' {
				_, _ = l.r.Discard(1)
				continue
			}
		}
		end := l.end(chunk)
		if end < 0 {
			chunk = chunk[:min(len(chunk), l.limit-len(l.buf)+1)]
		} else {
			l.skipLF = chunk[end] == '\r'
			chunk = chunk[:end]
		}
		if len(l.buf)+len(chunk) > l.limit {
			_, _ = l.r.Discard(len(chunk)) // of its end more is found by the next call
			l.skipLF = false
			return nil, errLineTooLong
		}
		l.buf = append(l.buf, chunk...)
		_, _ = l.r.Discard(len(chunk))
		if end >= 0 {
			_, _ = l.r.Discard(1)
			if l.heard != nil {
				l.heard()
			}
			return l.buf, nil
		}
	}
}

// rest throws away what is left of a line that is too long.
func (l *lines) rest() error {
	for {
		switch _, err := l.next(); {
		case errors.Is(err, errLineTooLong):
		default:
			return err
		}
	}
}

func (l *lines) end(chunk []byte) int {
	if l.cr {
		return bytes.IndexAny(chunk, "\r\n")
	}
	return bytes.IndexByte(chunk, '\n')
}
