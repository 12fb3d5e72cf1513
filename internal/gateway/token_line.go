package gateway

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// Bounds of a tokens file. maxPatterns bounds one list.
const (
	maxTokenLines = 20_000
	maxTokenBytes = 8 << 20
	maxPatterns   = 64
)

// tokenLine is a [Token] in the file.
type tokenLine struct {
	Name         string              `yaml:"name"`
	SHA256       string              `yaml:"sha256"`
	Nodes        []string            `yaml:"nodes,flow"`
	Expires      *time.Time          `yaml:"expires,omitempty"`
	Services     []string            `yaml:"services,omitempty,flow"`
	Pools        []string            `yaml:"pools,omitempty,flow"`
	Labels       map[string][]string `yaml:"labels,omitempty,flow"`
	Capabilities []string            `yaml:"capabilities,omitempty,flow"`
	Slots        int                 `yaml:"slots,omitempty"`
}

var tokenKeys = []string{"name", "sha256", "nodes", "expires", "services", "pools", "labels", "capabilities", "slots"}

// NewSecret makes a token's secret, and its digest for the tokens file.
func NewSecret() (secret string, digest [sha256.Size]byte) {
	var random [32]byte
	rand.Read(random[:])
	secret = "fsn_" + base64.RawURLEncoding.EncodeToString(random[:])
	return secret, sha256.Sum256([]byte(secret))
}

// Line returns the token as a line of the tokens file, without the newline. The error names the
// first field that a tokens file would refuse.
func (t *Token) Line() (string, error) {
	line := tokenLine{
		Name: t.Name, SHA256: hex.EncodeToString(t.Digest[:]), Nodes: t.Nodes,
		Services: t.Services, Pools: t.Pools, Labels: t.Labels, Capabilities: t.Capabilities, Slots: t.Slots,
	}
	if !t.Expires.IsZero() {
		at := t.Expires.UTC().Truncate(time.Second)
		line.Expires = &at
	}
	if _, err := line.token(); err != nil {
		return "", err
	}
	var mapping yaml.Node
	if err := mapping.Encode(line); err != nil {
		return "", err
	}
	mapping.Style = yaml.FlowStyle
	text, err := yaml.Marshal(&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{&mapping}})
	return strings.TrimSpace(string(text)), err
}

// parseTokens reads a tokens file. The error names the line, and quotes neither secrets nor
// digests.
func parseTokens(data []byte) (map[[sha256.Size]byte]*Token, error) {
	if len(data) > maxTokenBytes {
		return nil, fmt.Errorf("is larger than %d bytes", maxTokenBytes)
	}
	entries, err := tokenNodes(data)
	if err != nil {
		return nil, err
	}
	lines := make(map[[sha256.Size]byte]*Token, len(entries))
	for _, entry := range entries {
		token, err := parseToken(entry)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", entry.Line, err)
		}
		if lines[token.Digest] != nil {
			return nil, fmt.Errorf("line %d: sha256 is that of another line, expected each once", entry.Line)
		}
		lines[token.Digest] = token
	}
	return lines, nil
}

func tokenNodes(data []byte) ([]*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var root yaml.Node
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, plainYAML(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one YAML document, expected one")
	}
	list := root.Content[0]
	switch {
	case list.Kind == yaml.ScalarNode && list.Tag == "!!null":
		return nil, nil
	case list.Kind != yaml.SequenceNode:
		return nil, errors.New(`is not a sequence, expected lines such as "- {name: gpu-7, sha256: ..., nodes: [gpu-7]}"`)
	case len(list.Content) > maxTokenLines:
		return nil, fmt.Errorf("has %d tokens, expected at most %d", len(list.Content), maxTokenLines)
	}
	return list.Content, nil
}

func parseToken(entry *yaml.Node) (*Token, error) {
	if entry.Kind != yaml.MappingNode {
		return nil, errors.New("is not a mapping, expected {name: ..., sha256: ..., nodes: [...]}")
	}
	for i := 0; i < len(entry.Content); i += 2 {
		key := entry.Content[i].Value
		if !slices.Contains(tokenKeys, key) {
			return nil, fmt.Errorf("%s is unknown, expected %s", key, strings.Join(tokenKeys, ", "))
		}
		// A limit without a value would allow all, which its author hardly meant.
		if value := entry.Content[i+1]; value.Tag == "!!null" || value.Kind != yaml.ScalarNode && len(value.Content) == 0 {
			return nil, fmt.Errorf("%s has no value, expected one, or no %s", key, key)
		}
	}
	var line tokenLine
	if err := entry.Decode(&line); err != nil {
		return nil, plainYAML(err)
	}
	return line.token()
}

// token converts and checks the line. The error begins with the field.
func (l *tokenLine) token() (*Token, error) {
	t := &Token{
		Name: l.Name, Nodes: l.Nodes, Services: l.Services, Pools: l.Pools, Capabilities: l.Capabilities, Labels: l.Labels,
		Slots: l.Slots,
	}
	if err := freeslot.ValidateName("name", l.Name); err != nil {
		return nil, plainCoded(err)
	}
	digest, err := hex.DecodeString(l.SHA256)
	if err != nil || len(digest) != sha256.Size {
		return nil, fmt.Errorf(
			"sha256 is %d characters long, expected the SHA-256 of the token, 64 of 0-9 a-f", len(l.SHA256),
		)
	}
	t.Digest = [sha256.Size]byte(digest)
	if len(l.Nodes) == 0 {
		return nil, errors.New("nodes is empty, expected the ids of nodes, or patterns such as gpu-*")
	}
	if l.Expires != nil {
		t.Expires = *l.Expires
	}
	if l.Slots < 0 || l.Slots > frame.MaxSlots {
		return nil, fmt.Errorf("slots is %d, expected 1 to %d, or none for no limit", l.Slots, frame.MaxSlots)
	}
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"nodes", l.Nodes}, {"services", l.Services}, {"pools", l.Pools}, {"capabilities", l.Capabilities}} {
		if err := checkPatterns(list.key, list.patterns, namePattern); err != nil {
			return nil, err
		}
	}
	return t, l.checkLabels()
}

func (l *tokenLine) checkLabels() error {
	if len(l.Labels) > maxPatterns {
		return fmt.Errorf("labels has %d entries, expected at most %d", len(l.Labels), maxPatterns)
	}
	for _, label := range slices.Sorted(maps.Keys(l.Labels)) {
		if err := freeslot.ValidateName("labels", label); err != nil {
			return plainCoded(err)
		}
		if len(l.Labels[label]) == 0 {
			return fmt.Errorf("labels.%s has no values, expected values, or patterns such as eu-*", label)
		}
		if err := checkPatterns(
			"labels."+label, l.Labels[label], func(value string) bool { return len(value) <= freeslot.MaxLabelValueLength },
		); err != nil {
			return err
		}
	}
	return nil
}

func checkPatterns(key string, patterns []string, ok func(string) bool) error {
	if len(patterns) > maxPatterns {
		return fmt.Errorf("%s has %d entries, expected at most %d", key, len(patterns), maxPatterns)
	}
	for _, p := range patterns {
		if !ok(p) {
			return fmt.Errorf("%s has %q, expected a name, or a pattern such as gpu-*", key, p)
		}
	}
	return nil
}

// namePattern reports whether p could match a name.
func namePattern(p string) bool {
	return freeslot.ValidateName("", strings.ReplaceAll(p, "*", "x")) == nil
}

// plainYAML returns the library's message, which can have several lines, as one line.
func plainYAML(err error) error {
	return errors.New(strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
}

// plainCoded drops the error's code, which says nothing useful about a file.
func plainCoded(err error) error {
	if e, ok := errors.AsType[*freeslot.Error](err); ok {
		return errors.New(e.Message)
	}
	return err
}
