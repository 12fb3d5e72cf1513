package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// TestGolden decodes each line of the files, whose heads describe their format, and encodes the
// result. A new line goes into the file alone; -update writes what it becomes.
func TestGolden(t *testing.T) {
	t.Parallel()
	for file, decode := range map[string]func(text string) []string{
		"requests.txt": decodedRequest, "bodies.txt": decodedBody, "messages.txt": decodedMessages,
	} {
		before, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for line := range strings.Lines(string(before)) {
			if strings.HasPrefix(line, "\t") {
				continue
			}
			out.WriteString(line)
			if line = strings.TrimSuffix(line, "\n"); line == "" || line[0] == '#' {
				continue
			}
			for _, result := range decode(goldenText(t, line)) {
				// The library draws one of two verbs in each process.
				result = strings.ReplaceAll(result, "json: unable to", "json: cannot")
				out.WriteString("\t" + result + "\n")
			}
		}
		golden.Check(t, file, out.String())
	}
}

var repeated = regexp.MustCompile(`<(\d+)\*([^>]+)>`)

// goldenText is the text that a line stands for.
func goldenText(t *testing.T, line string) string {
	t.Helper()
	if line[0] == '"' {
		text, err := strconv.Unquote(line)
		if err != nil {
			t.Fatalf("%s: %v; want no error", line, err)
		}
		return text
	}
	return repeated.ReplaceAllStringFunc(line, func(text string) string {
		part := repeated.FindStringSubmatch(text)
		n, _ := strconv.Atoi(part[1])
		var out strings.Builder
		for i := range n {
			out.WriteString(strings.ReplaceAll(part[2], "#", strconv.Itoa(i)))
		}
		return out.String()
	})
}

func decodedRequest(text string) (out []string) {
	l := Limits{MaxPayloadBytes: 32 << 10, MaxBatch: 3}
	r, err := l.DecodeRequest([]byte(text))
	if err != nil {
		if out = refused(err, " id="+r.ID); !cmp.Equal(r, Request{ID: r.ID}) {
			out = append(out, "! the request has more than its id")
		}
		return out
	}
	for i := range r.Jobs {
		if err := l.CheckJob(&r, i); err != nil {
			out = append(out, refused(err, "")...)
		}
	}
	if len(out) > 0 {
		return out
	}
	return []string{encoded(text, encodeRequest(r))}
}

func decodedBody(text string) []string {
	job, err := DecodeJob([]byte(text))
	part, limit, errPart := DecodeExplain([]byte(text))
	one := func(what string, job *freeslot.Job, err *freeslot.Error, more string) (out []string) {
		if err == nil {
			if invalid := job.Validate("job"); invalid != nil {
				err = AsError(invalid)
			}
		}
		if err != nil {
			out = refused(err, "")
		} else {
			out = []string{encoded(text, appendJSON(nil, job)) + more}
		}
		for i := range out {
			out[i] = what + " " + out[i]
		}
		return out
	}
	more := ""
	if limit != nil {
		more = fmt.Sprint(" limit=", *limit)
	}
	return append(one("job", &job, err, ""), one("explain", &part, errPart, more)...)
}

func decodedMessages(text string) []string {
	var out []string
	err := DecodeMessages([]byte(text), func(m *Message) {
		if slices.Contains(MessageTypes(), m.Type) {
			out = append(out, encoded(text, encodeMessage(nil, *m)))
		} else {
			out = append(out, "= a message of the unknown type "+string(m.Type))
		}
	})
	switch {
	case errors.Is(err, ErrMalformed):
		return []string{"! " + err.Error()}
	case err != nil:
		return []string{"! not ErrMalformed: " + err.Error()}
	}
	return out
}

func refused(err *freeslot.Error, more string) []string {
	return []string{fmt.Sprintf("! %s field=%s%s", err.Code, err.Field, more), "! " + err.Message}
}

// encoded is the encoder's output for what was decoded.
func encoded(text string, again []byte) string {
	if string(again) == text {
		return "= the same"
	}
	return "= " + string(again)
}
