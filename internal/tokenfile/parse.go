package tokenfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot"
)

// Bounds of a file.
const (
	maxTokens = 20_000
	maxBytes  = 8 << 20
)

// part is the text of one item of the sequence, or what is in front of the first.
type part[L any] struct {
	text   []byte
	tokens []*token[L]
	slips  []slip
}

// slip is what is wrong with an item.
type slip struct {
	line int // in its part, from 1
	err  error
}

type token[L any] struct {
	Head
	line  L
	place int          // the line in its part, from 1
	seen  atomic.Int64 // when Get returned it last, in seconds since 1970; 0: never
}

// split cuts a file before each line that begins an item, and parses only the parts that differ
// from the parts of the last reading, which it returns as fresh: to parse costs far more than the
// rest.
func split[L any](
	data []byte, last []*part[L], parse func(*yaml.Node) (L, Head, error),
) (all, fresh []*part[L]) {
	texts := cut(data, len(last))
	all = make([]*part[L], len(texts))
	same := 0
	for same < min(len(texts), len(last)) && bytes.Equal(texts[same], last[same].text) {
		all[same] = last[same]
		all[same].text = texts[same] // so that the last reading's bytes can be freed
		same++
	}
	i, j := len(texts), len(last)
	for i > same && j > same && bytes.Equal(texts[i-1], last[j-1].text) {
		i, j = i-1, j-1
		all[i] = last[j]
		all[i].text = texts[i]
	}
	slips := false
	for k := same; k < i; k++ {
		all[k] = parsePart(texts[k], parse)
		slips = slips || len(all[k].slips) > 0
	}
	// A part that cannot be read alone may refer to another one, by an anchor of YAML.
	if slips && len(all) > 1 {
		if whole := parsePart(data, parse); len(whole.slips) == 0 {
			all = []*part[L]{whole}
			return all, all
		}
	}
	return all, all[same:i]
}

// cut cuts data before each line that begins as the first item does. Deeper items of a line are
// indented further. about is how many parts there may be.
func cut(data []byte, about int) (texts [][]byte) {
	begin := firstItem(data)
	if begin == nil {
		return [][]byte{data}
	}
	texts = make([][]byte, 0, about+1)
	separator := append([]byte{'\n'}, begin...)
	if !bytes.HasPrefix(data, begin) {
		at := bytes.Index(data, separator) + 1
		texts, data = append(texts, data[:at]), data[at:]
	}
	for {
		at := bytes.Index(data, separator)
		if at < 0 {
			return append(texts, data)
		}
		texts, data = append(texts, data[:at+1]), data[at+1:]
	}
}

var item = regexp.MustCompile(`(?m)^ *-(?: |$)`)

// firstItem returns how the first item begins: its indentation and its dash.
func firstItem(data []byte) []byte { return item.Find(data) }

func parsePart[L any](text []byte, parse func(*yaml.Node) (L, Head, error)) *part[L] {
	p := &part[L]{text: text}
	entries, bad := entries(text)
	if bad != nil {
		p.slips = append(p.slips, *bad)
		return p
	}
	for _, entry := range entries {
		line, head, err := parse(entry)
		if err != nil {
			p.slips = append(p.slips, slip{entry.Line, err})
			continue
		}
		p.tokens = append(p.tokens, &token[L]{Head: head, line: line, place: entry.Line})
	}
	return p
}

// entries returns the items of a part, or what is wrong with all of it.
func entries(text []byte) ([]*yaml.Node, *slip) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		bad := yamlSlip(err)
		return nil, &bad
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &slip{1, errors.New("holds more than one YAML document, expected one")}
	}
	list := root.Content[0]
	switch {
	case list.Kind == yaml.ScalarNode && list.Tag == "!!null":
		return nil, nil
	case list.Kind != yaml.SequenceNode:
		return nil, &slip{1, errors.New(`is not a sequence, expected lines such as "- {name: gpu-7, sha256: ...}"`)}
	}
	return list.Content, nil
}

var yamlLine = regexp.MustCompile(`^line (\d+): (.*)$`)

// yamlSlip takes the line out of the library's message.
func yamlSlip(err error) slip {
	// The message can have several lines.
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		line, _ := strconv.Atoi(found[1])
		return slip{max(line, 1), errors.New(found[2])}
	}
	return slip{1, errors.New(text)}
}

// Decode decodes an item into line, and refuses keys that are not known or have no value. A limit
// without a value would allow all, which its author hardly meant. The keys of closed can have an
// empty list, which allows nothing.
func Decode(entry *yaml.Node, keys []string, line any, closed ...string) error {
	if entry.Kind != yaml.MappingNode {
		return fmt.Errorf("is not a mapping, expected {%s: ...}", strings.Join(keys[:3], ": ..., "))
	}
	for i := 0; i < len(entry.Content); i += 2 {
		key := entry.Content[i].Value
		if !slices.Contains(keys, key) {
			return fmt.Errorf("%s is unknown, expected %s", key, strings.Join(keys, ", "))
		}
		value := entry.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		empty := value.Kind != yaml.ScalarNode && len(value.Content) == 0 && !slices.Contains(closed, key)
		if value.Tag == "!!null" || empty {
			return fmt.Errorf("%s has no value, expected one, or no %s", key, key)
		}
	}
	if err := entry.Decode(line); err != nil {
		return yamlSlip(err).err
	}
	return nil
}

// Digest decodes the key sha256 of an item.
func Digest(text string) ([sha256.Size]byte, error) {
	digest, err := hex.DecodeString(text)
	if err != nil || len(digest) != sha256.Size {
		return [sha256.Size]byte{}, fmt.Errorf(
			"sha256 is %d characters long, expected the SHA-256 of the token, 64 of 0-9 a-f", len(text),
		)
	}
	return [sha256.Size]byte(digest), nil
}

// Expiry returns the key expires of an item; the zero time, which means never, if at is nil. It
// refuses a line that has the zero time.
func Expiry(at *time.Time) (time.Time, error) {
	if at == nil {
		return time.Time{}, nil
	}
	if at.IsZero() {
		return time.Time{}, fmt.Errorf(
			"expires is %s, expected a time such as 2030-01-31, or no expires for a token that does not expire",
			at.Format(time.DateOnly),
		)
	}
	return *at, nil
}

// PlainCoded drops the code of an error, which says nothing useful about a file.
func PlainCoded(err error) error {
	if e, ok := errors.AsType[*freeslot.Error](err); ok {
		return errors.New(e.Message)
	}
	return err
}

// CheckPatterns refuses patterns that cannot match, and too many of them.
func CheckPatterns(key string, patterns []string, ok func(string) bool) error {
	const most = 64
	if len(patterns) > most {
		return fmt.Errorf("%s has %d entries, expected at most %d", key, len(patterns), most)
	}
	for _, p := range patterns {
		if !ok(p) {
			return fmt.Errorf("%s has %q, expected a name, or a pattern such as gpu-*", key, p)
		}
	}
	return nil
}

// NamePattern reports whether p could match a name.
func NamePattern(p string) bool {
	return freeslot.ValidateName("", strings.ReplaceAll(p, "*", "x")) == nil
}

// Line renders an item as one line, without the newline.
func Line(item any) (string, error) {
	var mapping yaml.Node
	if err := mapping.Encode(item); err != nil {
		return "", err
	}
	mapping.Style = yaml.FlowStyle
	text, err := yaml.Marshal(&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{&mapping}})
	return strings.TrimSpace(string(text)), err
}
