package schematest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// CheckCompatible compares docs/schema/<name> with the file of the last release, in testdata of this
// package: programs that were written for that release must go on with replicas of this build.
// toServer and fromServer name the definitions of frames, such as ClientFrame.
func CheckCompatible(t *testing.T, root, name, toServer, fromServer string) {
	t.Helper()
	released := readSchema(t, filepath.Join(root, "internal", "testing", "schematest", "testdata", name))
	now := readSchema(t, filepath.Join(root, "docs", "schema", name))
	for _, text := range breaks(released, now, toServer, fromServer) {
		t.Errorf("%s breaks programs of the last release: %s", name, text)
	}
}

func readSchema(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatalf("%s: %v; want no error", name, err)
	}
	return tree
}

// breaks returns what no longer holds. A server may send more and must accept what it accepted.
func breaks(released, now map[string]any, toServer, fromServer string) []string {
	c := &comparison{old: object(released["$defs"]), now: object(now["$defs"]), seen: map[string]bool{}}
	c.named(toServer, true)
	c.named(fromServer, false)
	slices.Sort(c.found)
	return slices.Compact(c.found)
}

type comparison struct {
	old, now map[string]any // definitions
	seen     map[string]bool
	found    []string
}

func (c *comparison) add(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// named compares a definition. toServer is true if a server reads it.
func (c *comparison) named(name string, toServer bool) {
	key := fmt.Sprint(name, toServer)
	if c.seen[key] {
		return
	}
	c.seen[key] = true
	if c.now[name] == nil {
		c.add("%s is gone", name)
		return
	}
	c.schema(name, object(c.old[name]), object(c.now[name]), toServer)
}

func (c *comparison) schema(path string, old, now map[string]any, toServer bool) {
	for _, keyword := range []string{"type", "const", "$ref"} {
		if fmt.Sprint(old[keyword]) != fmt.Sprint(now[keyword]) {
			c.add("%s has another %s", path, keyword)
		}
	}
	if ref, ok := old["$ref"].(string); ok {
		c.named(strings.TrimPrefix(ref, refs), toServer)
	}
	c.required(path, old, now, toServer)
	for _, value := range list(old["enum"]) {
		if now["enum"] != nil && !slices.Contains(list(now["enum"]), value) {
			c.add("%s has no value %v", path, value)
		}
	}
	if toServer {
		c.tightened(path, old, now)
	}
	for _, name := range slices.Sorted(maps.Keys(object(old["properties"]))) {
		part, ok := object(now["properties"])[name]
		if !ok {
			c.add("%s.%s is gone", path, name)
			continue
		}
		c.schema(path+"."+name, object(object(old["properties"])[name]), object(part), toServer)
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if old[keyword] != nil {
			c.schema(path+"[]", object(old[keyword]), object(now[keyword]), toServer)
		}
	}
	c.members(path, old, now, toServer)
}

// required compares which fields must be there.
func (c *comparison) required(path string, old, now map[string]any, toServer bool) {
	before, after := list(old["required"]), list(now["required"])
	if toServer {
		before, after = after, before
	}
	for _, name := range before {
		if slices.Contains(after, name) {
			continue
		}
		if toServer {
			c.add("%s.%v is required", path, name)
		} else {
			c.add("%s.%v may be absent", path, name)
		}
	}
}

// tightened finds what a server accepted and does not accept any more.
func (c *comparison) tightened(path string, old, now map[string]any) {
	for _, keyword := range []string{"minimum", "minLength", "minItems", "maximum", "maxLength", "maxItems"} {
		bound, ok := now[keyword].(float64)
		before, had := old[keyword].(float64)
		tighter := had && bound > before
		if strings.HasPrefix(keyword, "max") {
			tighter = had && bound < before
		}
		if ok && (!had || tighter) {
			c.add("%s has the %s %v", path, keyword, bound)
		}
	}
	for _, keyword := range []string{"pattern", "enum"} {
		if now[keyword] != nil && (old[keyword] == nil || keyword == "pattern" && old[keyword] != now[keyword]) {
			c.add("%s has another %s", path, keyword)
		}
	}
	if now["additionalProperties"] == false && old["additionalProperties"] == nil {
		c.add("%s refuses unknown fields", path)
	}
}

// members compares alternatives: the forms of a frame, the messages of a union, and the fields of
// which a message has one.
func (c *comparison) members(path string, old, now map[string]any, toServer bool) {
	for _, keyword := range []string{"oneOf", "anyOf"} {
		before, after := members(old[keyword]), members(now[keyword])
		for _, member := range before {
			name, isRef := strings.CutPrefix(member, refs)
			switch {
			case !slices.Contains(after, member) && (isRef || toServer == (len(after) > 0)):
				c.add("%s has no %s", path, name)
			case isRef:
				c.named(name, toServer)
			}
		}
		for _, member := range after {
			message := keyword == "oneOf" && strings.HasPrefix(member, refs)
			// A server may accept more, and sends only what was expected. Clients ignore new messages.
			if !message && !slices.Contains(before, member) && toServer == (len(before) == 0) {
				c.add("%s has the new alternative %s", path, strings.TrimPrefix(member, refs))
			}
		}
	}
}

// members returns what the alternatives refer to, or their JSON.
func members(alternatives any) []string {
	var out []string
	for _, member := range list(alternatives) {
		text, err := json.Marshal(member)
		if err != nil {
			panic(err) // it was JSON
		}
		if ref, ok := object(member)["$ref"].(string); ok {
			text = []byte(ref)
		}
		out = append(out, string(text))
	}
	return out
}

func object(v any) map[string]any { o, _ := v.(map[string]any); return o }

func list(v any) []any { l, _ := v.([]any); return l }
