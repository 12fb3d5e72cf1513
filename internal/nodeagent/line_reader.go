package nodeagent

import (
	"bufio"
	"bytes"
	"errors"
)

// errLineTooLong is returned for a line above the limit. The next call goes on within that line.
var errLineTooLong = errors.New("a line is too long")

// lineReader reads lines of at most limit bytes from a text of any length.
type lineReader struct {
	r     *bufio.Reader
	limit int
	// cr is true if CR ends a line too, as LF and CR LF do.
	cr bool
	// heard is called for each whole line; nil calls nothing.
	heard func()
	// skipLF is true after a CR: a following LF belongs to it.
	skipLF bool
	buf    []byte
	// begun is true after the first call, whose line may have a byte order mark.
	begun bool
}

// next returns a line without its end, valid until the next call. With io.EOF it returns the text
// after the last end.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.line()
	if !l.begun {
		l.begun, line = true, withoutMark(line)
	}
	return line, err
}

func (l *lineReader) line() ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		// Waits for one byte, then takes the bytes that have come with it: a line must not wait for
		// the next one.
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
			_, _ = l.r.Discard(len(chunk)) // the next call looks for the end of the line
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

// rest skips the rest of a line that is too long.
func (l *lineReader) rest() error {
	for {
		if _, err := l.next(); !errors.Is(err, errLineTooLong) {
			return err
		}
	}
}

func (l *lineReader) end(chunk []byte) int {
	if l.cr {
		return bytes.IndexAny(chunk, "\r\n")
	}
	return bytes.IndexByte(chunk, '\n')
}
