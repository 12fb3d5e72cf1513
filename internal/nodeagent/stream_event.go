package nodeagent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"unicode/utf8"
)

// The kinds of events of a stream: the keys of NDJSON, and the event names of SSE.
const (
	eventProgress = "progress"
	eventResult   = "result"
	eventError    = "error"
)

// streamBuffer is the largest part of a stream that is read at a time.
const streamBuffer = 4 << 10

// errNotAnEvent is returned for a line of NDJSON that is not an event.
var errNotAnEvent = errors.New(`not {"progress": …}, {"result": …} or {"error": …}`)

// event is one event of a stream, of one of the three kinds.
type event struct {
	kind string
	// data is valid until the next event is read. In SSE it need not be JSON.
	data []byte
}

// eventReader returns io.EOF or io.ErrUnexpectedEOF at the end of a stream, and errLineTooLong.
type eventReader interface{ next() (event, error) }

// newEventReader returns nil for a content type that is not a stream's. No event is larger than
// limit. Each line calls heard.
func newEventReader(contentType string, body io.Reader, limit int, heard func()) eventReader {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil
	}
	in := &lineReader{r: bufio.NewReaderSize(body, streamBuffer), limit: limit, heard: heard}
	switch kind {
	case "application/x-ndjson", "application/jsonl":
		return &ndjson{in}
	case "text/event-stream":
		in.cr = true
		return &sse{in: in}
	default:
		return nil
	}
}

// ndjson reads one event from each line that is not blank.
type ndjson struct{ in *lineReader }

func (n *ndjson) next() (event, error) {
	for {
		line, err := n.in.next()
		if len(bytes.Trim(line, " \t\r")) == 0 && err == nil {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return event{}, err
		}
		ev, ok := decodeLine(line)
		switch {
		case ok: // the last line needs no end, because its brace is closed
			return ev, nil
		case err != nil: // the stream broke off within a line
			return event{}, err
		default:
			return event{}, fmt.Errorf("%w: %s", errNotAnEvent, excerpt(line))
		}
	}
}

func decodeLine(line []byte) (event, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || len(fields) != 1 {
		return event{}, false
	}
	for kind, data := range fields {
		if isEvent(kind) {
			return event{kind, data}, true
		}
	}
	return event{}, false
}

func isEvent(kind string) bool {
	return kind == eventProgress || kind == eventResult || kind == eventError
}

// sse reads an event stream of the HTML standard (section 9.2, server-sent events). It ignores
// events of other names, comments, id and retry. Libraries also return an event that is cut off at
// the end; here that could be half of a result.
type sse struct {
	in   *lineReader
	data []byte
}

func (s *sse) next() (event, error) {
	kind, has := "", false
	s.data = s.data[:0]
	for {
		line, err := s.in.next()
		if err != nil {
			return event{}, err // an event without an end does not count
		}
		if len(line) == 0 {
			if has && isEvent(kind) {
				return event{kind, s.data}, nil
			}
			kind, has, s.data = "", false, s.data[:0]
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			kind = string(value)
		case "data":
			if len(s.data)+len(value) >= s.in.limit {
				return event{}, errLineTooLong
			}
			if has {
				s.data = append(s.data, '\n')
			}
			has, s.data = true, append(s.data, value...)
		}
	}
}

// excerpt returns the beginning of data that cannot be decoded, for an error.
func excerpt(data []byte) string {
	if len(data) > excerptBytes {
		data = data[:excerptBytes]
		for n := 1; n < utf8.UTFMax; n++ { // a character that is cut would be shown as bytes
			if begin := excerptBytes - n; utf8.RuneStart(data[begin]) {
				if !utf8.FullRune(data[begin:]) {
					data = data[:begin]
				}
				break
			}
		}
		return fmt.Sprintf("%q…", data)
	}
	return fmt.Sprintf("%q", data)
}
