package nodeagent

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// read takes all events, as "kind data", and the error at the end.
func read(r eventReader) (events []string, err error) {
	for {
		ev, err := r.next()
		if err != nil {
			return events, err
		}
		events = append(events, ev.kind+" "+string(ev.data))
	}
}

// ways are readers of the same text in pieces of different sizes.
func ways(text string) map[string]io.Reader {
	return map[string]io.Reader{
		"whole": strings.NewReader(text), "by byte": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text)),
	}
}

const (
	ndjsonType = "application/x-ndjson"
	sseType    = "text/event-stream; charset=utf-8"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind, text string
		want       []string
		err        error
	}{
		"ndjson": {
			kind: ndjsonType, text: "{\"progress\":{\"done\":1}}\n\r\n  \n {\"progress\" : \"ä\\n\"}\r\n{\"error\":{}}\n{\"result\":null}\n",
			want: []string{`progress {"done":1}`, `progress "ä\n"`, "error {}", "result null"}, err: io.EOF,
		},
		"jsonl":                    {kind: "application/jsonl", text: `{"result":1}` + "\n", want: []string{"result 1"}, err: io.EOF},
		"ndjson, no last end":      {kind: ndjsonType, text: `{"result":[1]}`, want: []string{"result [1]"}, err: io.EOF},
		"ndjson, broken off":       {kind: ndjsonType, text: "{\"progress\":1}\n{\"result\":[1", want: []string{"progress 1"}, err: io.EOF},
		"ndjson, empty":            {kind: ndjsonType, err: io.EOF},
		"ndjson, two keys":         {kind: ndjsonType, text: `{"progress":1,"result":2}` + "\n", err: errNotAnEvent},
		"ndjson, other key":        {kind: ndjsonType, text: `{"log":1}` + "\n", err: errNotAnEvent},
		"ndjson, other case":       {kind: ndjsonType, text: `{"Result":1}` + "\n", err: errNotAnEvent},
		"ndjson, no object":        {kind: ndjsonType, text: "null\n", err: errNotAnEvent},
		"ndjson, no JSON":          {kind: ndjsonType, text: "50 %\n", err: errNotAnEvent},
		"ndjson, at the limit":     {kind: ndjsonType, text: `{"result":"` + strings.Repeat("x", 87) + "\"}\n", want: []string{`result "` + strings.Repeat("x", 87) + `"`}, err: io.EOF},
		"ndjson, over the limit":   {kind: ndjsonType, text: `{"result":"` + strings.Repeat("x", 88) + "\"}\n", err: errLineTooLong},
		"ndjson, endless line":     {kind: ndjsonType, text: strings.Repeat("x", 100_000), err: errLineTooLong},
		"ndjson, CR is white":      {kind: ndjsonType, text: "{\"result\":\r1}\r\n", want: []string{"result 1"}, err: io.EOF},
		"sse":                      {kind: sseType, text: "event: progress\ndata: {\"done\":1}\n\nevent:result\ndata:2\n\n", want: []string{`progress {"done":1}`, "result 2"}, err: io.EOF},
		"sse, CR LF":               {kind: sseType, text: "event: result\r\ndata: 1\r\n\r\n", want: []string{"result 1"}, err: io.EOF},
		"sse, CR":                  {kind: sseType, text: "event: progress\rdata: 1\r\revent: result\rdata: 2\r\r", want: []string{"progress 1", "result 2"}, err: io.EOF},
		"ndjson, byte order mark":  {kind: ndjsonType, text: "\ufeff{\"progress\":1}\n{\"result\":2}", want: []string{"progress 1", "result 2"}, err: io.EOF},
		"sse, byte order mark":     {kind: sseType, text: "\ufeffevent: result\ndata: 1\n\n", want: []string{"result 1"}, err: io.EOF},
		"sse, several lines":       {kind: sseType, text: "data: [\ndata:  1,\ndata\ndata: 2]\nevent: result\n\n", want: []string{"result [\n 1,\n\n2]"}, err: io.EOF},
		"sse, comments and more":   {kind: sseType, text: ": ping\n\n:\nid: 7\nretry: 10\nfoo: bar\nfoo\nevent: result\n: x\ndata: 1\n\n", want: []string{"result 1"}, err: io.EOF},
		"sse, unknown events":      {kind: sseType, text: "data: 1\n\nevent: log\ndata: 2\n\nevent: Result\ndata: 3\n\nevent: result\ndata: 4\n\n", want: []string{"result 4"}, err: io.EOF},
		"sse, without data":        {kind: sseType, text: "event: result\n\ndata: 1\n\n", err: io.EOF},
		"sse, empty data":          {kind: sseType, text: "event: progress\ndata:\n\n", want: []string{"progress "}, err: io.EOF},
		"sse, an event not ended":  {kind: sseType, text: "event: result\ndata: 1\n", err: io.EOF},
		"sse, a line not ended":    {kind: sseType, text: "event: result\ndata: 1\n\nevent: result\ndata: 2", want: []string{"result 1"}, err: io.EOF},
		"sse, over the limit":      {kind: sseType, text: "event: result\n" + strings.Repeat("data: xxxxxxxxx\n", 11) + "\n", err: errLineTooLong},
		"sse, line over the limit": {kind: sseType, text: "event: log\ndata: " + strings.Repeat("x", 100) + "\n\n", err: errLineTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for way, r := range ways(test.text) {
				got, err := read(newEventReader(test.kind, r, 100, func() {}))
				if !errors.Is(err, test.err) {
					t.Errorf("%s: error %v, expected %v", way, err, test.err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf(`%s: %s; want diff == ""`, way, diff)
				}
			}
		})
	}
	for _, none := range []string{"application/json", "text/plain", "", "text/event-stream;=", "application/x-ndjson2"} {
		if newEventReader(none, strings.NewReader(""), 1, nil) != nil {
			t.Errorf("%q is taken for a stream", none)
		}
	}
}

// The twin of the decoders works on the whole text at once, by string functions.
func twin(kind, text string, limit int) (events []string, err error) {
	if kind == ndjsonType {
		parts := strings.Split(text, "\n")
		for i, line := range parts {
			last := i == len(parts)-1
			if len(line) > limit {
				return events, errLineTooLong
			}
			if i == 0 {
				line = strings.TrimPrefix(line, "\ufeff")
			}
			if strings.Trim(line, " \t\r") == "" {
				continue
			}
			var fields map[string]json.RawMessage
			if json.Unmarshal([]byte(line), &fields) == nil && len(fields) == 1 {
				for _, known := range []string{eventProgress, eventResult, eventError} {
					if data, ok := fields[known]; ok {
						events = append(events, known+" "+string(data))
						fields = nil
					}
				}
				if fields == nil {
					continue
				}
			}
			if last {
				return events, io.EOF
			}
			return events, errNotAnEvent
		}
		return events, io.EOF
	}
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	name, data := "", []string(nil)
	parts := strings.Split(text, "\n")
	for i, line := range parts {
		if len(line) > limit {
			return events, errLineTooLong
		}
		if i == len(parts)-1 {
			break // not ended
		}
		if i == 0 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil && (name == eventProgress || name == eventResult || name == eventError) {
				events = append(events, name+" "+strings.Join(data, "\n"))
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			if len(strings.Join(data, "\n"))+len(value) >= limit {
				return events, errLineTooLong
			}
			data = append(data, value)
		}
	}
	return events, io.EOF
}

func FuzzEvents(f *testing.F) {
	for _, text := range []string{
		"{\"progress\":1}\n\n{\"result\":[1]}", "event: progress\ndata: 1\r\n\r\nevent: result\ndata: 2\rdata:\n\n: x\n", "\ufeffdata\n\n", "{\"a\":1}\n", "\r\r\n\n\r",
		strings.Repeat("x", 70) + "\n", "\v\n", "data: " + strings.Repeat("x", 50) + "\ndata: " + strings.Repeat("x", 50) + "\n\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const limit = 64
		for _, kind := range []string{ndjsonType, sseType} {
			want, wantErr := twin(kind, text, limit)
			for way, r := range ways(text) {
				got, err := read(newEventReader(kind, r, limit, nil))
				if !errors.Is(err, wantErr) {
					t.Errorf("%s %s: error %v, expected %v", kind, way, err, wantErr)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf(`%s %s: %s; want diff == ""`, kind, way, diff)
				}
			}
		}
	})
}

// A line that is too long is dropped, and the next one is read.
func TestLinesGoOnAfterALongOne(t *testing.T) {
	t.Parallel()
	for way, r := range ways("a\n" + strings.Repeat("x", 50) + "\nb\n" + strings.Repeat("y", 11) + "\n\nc") {
		in, got, heard := &lineReader{r: bufio.NewReaderSize(r, 16), limit: 10}, "", 0
		in.heard = func() { heard++ }
		for {
			line, err := in.next()
			if errors.Is(err, errLineTooLong) {
				line, err = []byte("!"), in.rest()
			}
			got += string(line) + ";"
			if err != nil {
				break
			}
		}
		if got != "a;!;b;!;;c;" {
			t.Errorf(`%s: %q; want got == "a;!;b;!;;c;"`, way, got)
		}
		if heard != 5 {
			t.Errorf("%s: %d lines", way, heard)
		}
	}
}
