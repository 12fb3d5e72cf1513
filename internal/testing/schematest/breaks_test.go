package schematest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const released = `{"$defs": {
	"ClientFrame": {"anyOf": [{"$ref": "#/$defs/ClientMessage"}, {"type": "array", "items": {"$ref": "#/$defs/ClientMessage"}}]},
	"ReplicaFrame": {"anyOf": [{"$ref": "#/$defs/ReplicaMessage"}]},
	"ClientMessage": {"oneOf": [{"$ref": "#/$defs/Ask"}]},
	"ReplicaMessage": {"oneOf": [{"$ref": "#/$defs/Answer"}, {"$ref": "#/$defs/News"}]},
	"Ask": {"type": "object", "required": ["type"], "oneOf": [{"required": ["name"]}, {"required": ["text"]}], "properties": {
		"type": {"const": "ask"}, "name": {"type": "string", "maxLength": 8}, "kind": {"type": "string", "enum": ["a", "b"]}, "text": {"type": "string"}}},
	"Answer": {"type": "object", "required": ["type", "job"], "properties": {"type": {"const": "answer"}, "job": {"$ref": "#/$defs/Job"}}},
	"News": {"type": "object", "required": ["type"], "properties": {"type": {"const": "news"}}},
	"Job": {"type": "object", "properties": {"id": {"type": "string"}, "state": {"type": "string", "enum": ["on", "off"]}}}
}}`

// TestBreaks: additions are none, and each thing that a program of the last release would trip over
// is found.
func TestBreaks(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		// What a server may do.
		`"maxLength": 8 => "maxLength": 9`:       "",
		`, "maxLength": 8 => `:                   "",
		`["a", "b"] => ["a", "b", "c"]`:          "",
		`["on", "off"] => ["on", "off", "gone"]`: "",
		`"id": {"type": "string"} => "id": {"type": "string"}, "more": {"type": "integer"}`:                                            "",
		`"required": ["type", "job"] => "required": ["type", "job", "more"]`:                                                           "",
		`"text": {"type": "string"} => "text": {"type": "string"}, "more": {"type": "integer"}`:                                        "",
		`[{"required": ["name"]}, {"required": ["text"]}] => [{"required": ["name"]}, {"required": ["text"]}, {"required": ["kind"]}]`: "",
		`, "oneOf": [{"required": ["name"]}, {"required": ["text"]}] => `:                                                              "",
		`"Job": {"type": "object" => "Job": {"type": "object", "oneOf": [{"required": ["id"]}]`:                                        "",
		`{"$ref": "#/$defs/News"}] => {"$ref": "#/$defs/News"}, {"$ref": "#/$defs/Job"}]`:                                              "",
		// What it may not.
		`, {"type": "array", "items": {"$ref": "#/$defs/ClientMessage"}} => `:                                      `ClientFrame has no {"items":{"$ref":"#/$defs/ClientMessage"},"type":"array"}`,
		`[{"$ref": "#/$defs/ReplicaMessage"}] => [{"$ref": "#/$defs/ReplicaMessage"}, {"type": "array"}]`:          `ReplicaFrame has the new alternative {"type":"array"}`,
		`{"required": ["name"]}, {"required": ["text"]} => {"required": ["name"]}`:                                 `Ask has no {"required":["text"]}`,
		`"maxLength": 8 => "maxLength": 7`:                                                                         "Ask.name has the maxLength 7",
		`"text": {"type": "string"} => "text": {"type": "string", "minLength": 1}`:                                 "Ask.text has the minLength 1",
		`"text": {"type": "string"} => "text": {"type": "string", "pattern": "a"}`:                                 "Ask.text has another pattern",
		`"text": {"type": "string"} => "text": {"type": "integer"}`:                                                "Ask.text has another type",
		`, "text": {"type": "string"} => `:                                                                         "Ask.text is gone",
		`["a", "b"] => ["b"]`:                                                                                      "Ask.kind has no value a",
		`["on", "off"] => ["on"]`:                                                                                  "Job.state has no value off",
		`"Ask": {"type": "object", "required": ["type"] => "Ask": {"type": "object", "required": ["type", "text"]`: "Ask.text is required",
		`"Ask": {"type": "object" => "Ask": {"type": "object", "additionalProperties": false`:                      "Ask refuses unknown fields",
		`"required": ["type", "job"] => "required": ["type"]`:                                                      "Answer.job may be absent",
		`"const": "news" => "const": "gossip"`:                                                                     "News.type has another const",
		`, {"$ref": "#/$defs/News"} => `:                                                                           "ReplicaMessage has no News",
		`"Job": { => "Work": {`:                                                                                    "Job is gone",
	} {
		before, after, _ := strings.Cut(change, " => ")
		if !strings.Contains(released, before) {
			t.Fatalf("%s is not in the schema", before)
		}
		var got []string
		if found := breaks(parse(t, released), parse(t, strings.Replace(released, before, after, 1)), "ClientFrame", "ReplicaFrame"); found != nil {
			got = found
		}
		if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want}) {
			t.Errorf("%s: found %q, expected %q", change, got, want)
		}
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%s: %v; want no error", text, err)
	}
	return tree
}
