package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// strictYAML parses exactly one document that is a mapping, or nothing at all.
// (koanf's own parser drops every document after the first without a word.)
type strictYAML struct{}

func (strictYAML) Unmarshal(data []byte) (map[string]any, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var out any
	switch err := dec.Decode(&out); {
	case errors.Is(err, io.EOF):
		return map[string]any{}, nil
	case err != nil:
		return nil, yamlError(err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one YAML document, expected one")
	}
	switch out := out.(type) {
	case nil:
		return map[string]any{}, nil
	case map[string]any:
		return out, nil
	default:
		return nil, errors.New("is not a mapping, expected lines such as \"key: value\"")
	}
}

func (strictYAML) Marshal(map[string]any) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// parseYAML reads a value that the environment or a flag spells in YAML.
func parseYAML(s string) (any, error) {
	var out any
	if err := yaml.Unmarshal([]byte(s), &out); err != nil {
		return nil, yamlError(err)
	}
	return out, nil
}

// yamlError puts the library's messages, which can have several lines, on one.
func yamlError(err error) error {
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	s = strings.TrimPrefix(s, "unmarshal errors:\n")
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return errors.New(nextLine(strings.Join(lines, "; ")))
}

// offByOne matches what the library's parser says, unlike its scanner, with lines counted from 0.
var offByOne = regexp.MustCompile(`^line (\d+): (did not find expected (?:node content|key|'-' indicator|',' or '[\]}]'|<document start>))$`)

func nextLine(s string) string {
	m := offByOne.FindStringSubmatch(s)
	if m == nil {
		return s
	}
	line, err := strconv.Atoi(m[1])
	if err != nil {
		return s
	}
	return fmt.Sprintf("line %d: %s", line+1, m[2])
}
