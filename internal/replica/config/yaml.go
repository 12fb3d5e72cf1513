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

// ParseYAML reads exactly one YAML (or JSON) document that is a mapping. An empty text is an empty
// mapping.
func ParseYAML(data []byte) (map[string]any, error) { return parseDocument(data, new(yaml.Node)) }

// parseDocument also sets root, in which the function line finds the lines of keys.
func parseDocument(data []byte, root *yaml.Node) (map[string]any, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(root); {
	case errors.Is(err, io.EOF):
		return map[string]any{}, nil
	case err != nil:
		return nil, yamlError(err)
	}
	var out any
	if err := root.Decode(&out); err != nil {
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

// line returns the line of the value at path, or of the nearest thing around it.
func line(n *yaml.Node, path string) int {
	switch n.Kind {
	case yaml.DocumentNode:
		return line(n.Content[0], path)
	case yaml.AliasNode:
		return line(n.Alias, path)
	case yaml.SequenceNode:
		index, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(index); err == nil && i < len(n.Content) {
			return line(n.Content[i], rest)
		}
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			rest, ok := strings.CutPrefix(strings.TrimPrefix(path, "."), key.Value)
			if ok && rest == "" {
				return key.Line
			}
			if ok && strings.ContainsAny(rest[:1], ".[") {
				return line(n.Content[i+1], rest)
			}
		}
	}
	return n.Line
}

// parseYAML reads a value in YAML from the environment or a flag.
func parseYAML(s string) (any, error) {
	var out any
	if err := yaml.Unmarshal([]byte(s), &out); err != nil {
		return nil, yamlError(err)
	}
	return out, nil
}

// yamlError returns the library's message, which can have several lines, as one line.
func yamlError(err error) error {
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	s = strings.TrimPrefix(s, "unmarshal errors:\n")
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return errors.New(nextLine(strings.Join(lines, "; ")))
}

// offByOne matches the messages of the library's parser. Unlike the scanner, it counts lines from
// 0.
var offByOne = regexp.MustCompile(
	`^line (\d+): (did not find expected (?:node content|key|'-' indicator|',' or '[\]}]'|<document start>))$`,
)

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
