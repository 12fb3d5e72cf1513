package pagetest

import (
	"bufio"
	"fmt"
	"os"
	"strings"
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
