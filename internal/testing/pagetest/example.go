package pagetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Example is a fenced block of a page that has steps to replay.
type Example struct {
	// Name is the heading above it, with its line.
	Name  string
	Steps []Step
}

// Step is one line of an example.
type Step struct {
	Line int
	// Session is "A" or "B"; empty for an action.
	Session string
	Send    bool
	// Text is the frame, the pattern of a message, or the action.
	Text string
}

// ReadExamples collects the fenced json blocks of a page that have an arrow.
func ReadExamples(path string) ([]Example, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []Example
	var heading string
	var current *Example
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		switch {
		case current == nil && strings.HasPrefix(text, "#"):
			heading = strings.TrimLeft(text, "# ")
		case current == nil && text == "```json":
			current = &Example{Name: fmt.Sprintf("%s/line %d", heading, n)}
		case current != nil && text == "```":
			if len(current.Steps) > 0 {
				all = append(all, *current)
			}
			current = nil
		case current != nil:
			s, err := parseStep(n, text)
			if err != nil {
				return nil, err
			}
			current.Steps = append(current.Steps, s)
		}
	}
	return all, lines.Err()
}

func parseStep(line int, text string) (Step, error) {
	if action, ok := strings.CutPrefix(text, "# "); ok {
		return Step{Line: line, Text: action}, nil
	}
	session := "A"
	if strings.HasPrefix(text, "A") || strings.HasPrefix(text, "B") {
		session, text = text[:1], text[1:]
	}
	if frame, ok := strings.CutPrefix(text, "→ "); ok {
		return Step{Line: line, Session: session, Send: true, Text: frame}, nil
	}
	if pattern, ok := strings.CutPrefix(text, "← "); ok {
		return Step{Line: line, Session: session, Text: pattern}, nil
	}
	return Step{}, fmt.Errorf("line %d is no step: %s", line, text)
}

// CheckExamples compares the frames of a page's examples with the messages that each side may send,
// such as "schema/client-frames.json#/$defs/ClientMessage". A request that is answered with
// invalid_argument may break the schema.
func (d *Document) CheckExamples(t *testing.T, page, requests, answers string) {
	t.Helper()
	examples, err := ReadExamples(page)
	if err != nil || len(examples) == 0 {
		t.Fatalf("%d examples, error %v", len(examples), err)
	}
	for _, e := range examples {
		for i, step := range e.Steps {
			messages := answers
			if step.Send {
				messages = requests
			}
			start := strings.IndexAny(step.Text, "{[")
			if step.Session == "" || start < 0 || step.Send && refused(e.Steps[i+1:]) {
				continue
			}
			if err := d.checkFrame(messages, step.Text[start:]); err != nil {
				t.Errorf("line %d: %v", step.Line, err)
			}
		}
	}
}

func (d *Document) checkFrame(messages, text string) error {
	var frames []map[string]any
	if err := json.Unmarshal([]byte("["+strings.Trim(text, "[]")+"]"), &frames); err != nil {
		return err
	}
	for _, frame := range frames {
		if frame["type"] == nil { // the body of a refused request by HTTP
			continue
		}
		if err := d.Validate(d.member(messages, frame["type"]), frame); err != nil {
			return err
		}
	}
	return nil
}

// refused reports whether the next answer says that the request is wrong.
func refused(steps []Step) bool {
	return len(steps) > 0 && strings.Contains(steps[0].Text, `"code":"invalid_argument"`)
}

// member returns the message with this type. The union has no other keyword than oneOf that counts.
func (d *Document) member(union string, typ any) map[string]any {
	list, _ := Object(d.At(union))["oneOf"].([]any)
	for _, ref := range list {
		schema := d.resolve(Object(ref))
		if Object(Object(schema["properties"])["type"])["const"] == typ {
			return schema
		}
	}
	return map[string]any{"oneOf": []any{}}
}
