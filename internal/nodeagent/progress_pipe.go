package nodeagent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/freeslot/freeslot"
)

const (
	// progressFD is the number of the first file of exec.Cmd.ExtraFiles.
	progressFD = "3"
	// maxProgressLine is more than freeslot.MaxProgressBytes, because a value loses its white
	// space.
	maxProgressLine = 2 * freeslot.MaxProgressBytes
)

// progressPipe reads the progress that a command writes. It reads until the command has ended, so
// that the command never waits for long.
type progressPipe struct {
	to            *progressReporter
	reader, write *os.File
	reading       sync.WaitGroup
}

func newProgressPipe(to *progressReporter) (*progressPipe, error) {
	reader, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &progressPipe{to: to, reader: reader, write: write}, nil
}

// read starts reading. It is called once the command has its end of the pipe.
func (p *progressPipe) read() {
	_ = p.write.Close() // the command's copy stays
	p.reading.Go(p.lines)
}

func (p *progressPipe) lines() {
	in := &lineReader{r: bufio.NewReaderSize(p.reader, streamBuffer), limit: maxProgressLine}
	for {
		line, err := in.next()
		switch {
		case errors.Is(err, errLineTooLong):
			p.to.refuse(fmt.Errorf("a line of progress has more than %d bytes", maxProgressLine))
			if in.rest() != nil {
				return
			}
		case err != nil:
			return
		case len(bytes.TrimSpace(line)) > 0:
			p.to.report(line)
		}
	}
}

// close drops progress that was not read: it would no longer be sent.
func (p *progressPipe) close() {
	_ = p.reader.Close() // ends the reading, even if a process holds the other end
	_ = p.write.Close()  // it is still open only after a failed start
	p.reading.Wait()
}
