package importer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
)

// seedNode is a node in the format of an earlier design of the scheduler.
const seedNode = `{
  "node_id": "node-12345", "status": "online", "health": "Online",
  "capabilities": {"asr_languages": ["zh", "en"], "tts_languages": ["zh"], "semantic_languages": ["zh", "en"]},
  "resources": {"max_concurrency": 10, "current_jobs": 2, "cpu_usage": 0.5, "gpu_usage": 0.3, "memory_usage": 0.6},
  "pool_ids": [1, 2], "installed_services": ["asr", {"service_id": "faster-whisper", "type": "tts", "version": "1.2"}],
  "features_supported": {"emotion": true, "voice": false}, "last_heartbeat_ms": 1768045310000, "version": 123
}`

func TestReadNodeList(t *testing.T) {
	t.Parallel()
	want := freeslot.Node{
		ID: "node-12345", MaxConcurrency: 10, Pools: []string{"1", "2"},
		Languages: freeslot.Languages{ASR: []string{"zh", "en"}, TTS: []string{"zh"}, Semantic: []string{"zh", "en"}},
		Services:  []freeslot.Service{{Name: "asr"}, {Name: "tts", Version: "1.2"}},
		Features:  map[string]bool{"emotion": true, "voice": false},
	}
	for _, list := range []string{"[" + seedNode + "]", `{"nodes": [` + seedNode + `]}`, ` {"cursor": "", "nodes": [` + seedNode + `]} `} {
		entries, err := Read(strings.NewReader(list))
		if err != nil || len(entries) != 1 || entries[0].refusals != nil || entries[0].unknown != nil {
			t.Fatalf("%v %+v; want no error, len(entries) == 1, entries[0].refusals == nil, entries[0].unknown == nil", err, entries)
		}
		if diff := cmp.Diff(want, entries[0].node); diff != "" {
			t.Error(diff)
		}
	}
	// Nodes as this system shows them can be read again.
	own, err := json.Marshal([]api.NodeStatus{{Node: want, Epoch: "e", Resources: json.RawMessage(`{"cpu":1}`), Checked: "fresh", Silent: true}})
	must(t, err)
	entries, err := Read(strings.NewReader(string(own)))
	if err != nil || entries[0].refusals != nil || entries[0].unknown != nil {
		t.Fatalf("%v %+v; want no error, entries[0].refusals == nil, entries[0].unknown == nil", err, entries)
	}
	if diff := cmp.Diff(want, entries[0].node); diff != "" {
		t.Error(diff)
	}
}

func TestReadNodeForms(t *testing.T) {
	t.Parallel()
	entries, err := Read(strings.NewReader(`[{
		"node_id": "n", "max_concurrency": 2, "resources": {"max_concurrency": 2}, "pool_ids": ["a", 7, "7", 7],
		"installed_services": ["asr", "asr", {"name": "ocr"}, {"service_type": "tts", "name": null}, {"service_id": "x", "version": null}],
		"features_supported": ["f", "g"], "labels": {"gpu": "a100"}, "capabilities": {"asr_languages": null, "vision": []},
		"region": "eu", "gpu_model": null
	}]`))
	must(t, err)
	want := Entry{
		node: freeslot.Node{
			ID: "n", MaxConcurrency: 2, Pools: []string{"a", "7"}, Labels: map[string]string{"gpu": "a100"}, Features: map[string]bool{"f": true, "g": true},
			Services: []freeslot.Service{{Name: "asr"}, {Name: "ocr"}, {Name: "tts"}, {Name: "x"}},
		},
		unknown: []string{"capabilities.vision", "gpu_model", "region"},
	}
	if diff := cmp.Diff([]Entry{want}, entries, cmp.AllowUnexported(Entry{}, refusal{})); diff != "" {
		t.Error(diff)
	}
}

func TestReadNodeRefuses(t *testing.T) {
	t.Parallel()
	const rest = `"node_id": "n", "max_concurrency": 1, `
	for content, want := range map[string]string{
		`7`:              "node is 7, expected an object",
		`null`:           "node is null, expected an object",
		`{}`:             "node_id is missing; resources.max_concurrency is missing or 0, expected 1 to 65536",
		`{"node_id": 7}`: "node_id is 7, expected text; resources.max_concurrency is missing or 0, expected 1 to 65536",
		`{"node_id": "b ad", "max_concurrency": "4", "capabilities": {"asr_languages": "en"}}`: `max_concurrency is "4", expected a whole number; ` +
			`capabilities.asr_languages is "en", expected a list of languages; ` +
			"node_id has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit",
		`{` + rest + `"pool_ids": [-1, "a b"], "labels": {"a": 1}, "capabilities": {"tts_languages": ["d e"]}, "installed_services": ["a b", "c"]}`: "pool_ids[0] is -1, expected a name or a whole number; " +
			`labels is {"a": 1}, expected an object of texts; ` +
			"installed_services has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit; " +
			`capabilities.tts_languages is "d e", expected a BCP 47 language tag such as de or zh-Hant-TW`,
		`{` + rest + `"pool_ids": [-1, -2]}`:                                          "pool_ids[0] is -1, expected a name or a whole number; pool_ids[1] is -2, expected a name or a whole number",
		`{"node_id": "a:b", "max_concurrency":1}`:                                     "node_id has ':' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit",
		`{"node_id": "n"}`:                                                            "resources.max_concurrency is missing or 0, expected 1 to 65536",
		`{"node_id": "n", "max_concurrency": 0}`:                                      "max_concurrency is 0, expected 1 to 65536",
		`{"node_id": "n", "max_concurrency": 1.5}`:                                    "max_concurrency is 1.5, expected a whole number",
		`{"node_id": "n", "resources": {"max_concurrency": "4"}}`:                     `resources.max_concurrency is "4", expected a whole number`,
		`{"node_id": "n", "resources": {"max_concurrency": 70000}}`:                   "resources.max_concurrency is 70000, expected 1 to 65536",
		`{"node_id": "n", "max_concurrency": 1, "resources": {"max_concurrency": 2}}`: "resources.max_concurrency is 2, and max_concurrency is 1: expected one number",
		`{` + rest + `"resources": []}`:                                               "resources is [], expected an object",
		`{` + rest + `"capabilities": "de"}`:                                          `capabilities is "de", expected an object`,
		`{` + rest + `"capabilities": {"tts_languages": "de"}}`:                       `capabilities.tts_languages is "de", expected a list of languages`,
		`{` + rest + `"capabilities": {"asr_languages": ["d e"]}}`:                    `capabilities.asr_languages is "d e", expected a BCP 47 language tag such as de or zh-Hant-TW`,
		`{` + rest + `"installed_services": {}}`:                                      "installed_services is {}, expected a list",
		`{` + rest + `"installed_services": ["a", {"version": "1"}]}`:                 `installed_services[1] is {"version": "1"}, expected a name, or an object with one of name, service_type, type, service_id, and version as text`,
		`{` + rest + `"installed_services": [{"name": "a", "version": 1}]}`:           `installed_services[0] is {"name": "a", "version": 1}, expected a name, or an object with one of name, service_type, type, service_id, and version as text`,
		`{` + rest + `"installed_services": [""]}`:                                    `installed_services[0] is "", expected a name, or an object with one of name, service_type, type, service_id, and version as text`,
		`{` + rest + `"pool_ids": "a"}`:                                               `pool_ids is "a", expected a list`,
		`{` + rest + `"pool_ids": ["a", null]}`:                                       "pool_ids[1] is null, expected a name or a whole number",
		`{` + rest + `"pool_ids": [-1]}`:                                              "pool_ids[0] is -1, expected a name or a whole number",
		`{` + rest + `"pool_ids": ["a b"]}`:                                           "pool_ids has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit",
		`{` + rest + `"labels": {"a": 1}}`:                                            `labels is {"a": 1}, expected an object of texts`,
		`{` + rest + `"features_supported": {"a": "yes"}}`:                            `features_supported is {"a": "yes"}, expected an object of true and false, or a list of names`,
	} {
		entries, err := Read(strings.NewReader("[" + content + "]"))
		if err != nil || len(entries) != 1 || entries[0].refusals == nil {
			t.Errorf("%s: %v %+v; want no error, len(entries) == 1, entries[0].refusals != nil", content, err, entries)
			continue
		}
		var result Result
		result.refuse(entries[0].refusals)
		if got := result.Why(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", content, got, want)
		}
	}
	entries, err := Read(strings.NewReader(`[{` + rest + `"labels": 1}, {` + rest + `"labels": {}}, {` + rest + `"labels": {}}]`))
	must(t, err)
	if entries[1].refusals != nil || len(entries[2].refusals) != 1 || entries[2].refusals[0].reason != "is that of nodes[1] too, expected each id once" {
		t.Errorf(`%+v; want entries[1].refusals == nil, len(entries[2].refusals) == 1, entries[2].refusals[0].reason == "is that of nodes[1] too, expected each id once"`, entries)
	}
}

func TestReadNodeListRefuses(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":                              "is empty",
		"  ":                            "is empty",
		"null":                          "is null",
		"7":                             "cannot be read",
		"[{}":                           "cannot be read",
		"[] []":                         "cannot be read",
		"{":                             "cannot be read",
		"{}":                            `is an object without "nodes"`,
		`{"nodes": null}`:               `is an object without "nodes"`,
		`{"nodes": 7}`:                  `has "nodes" that cannot be read`,
		`{"nodes": [], "cursor": "n9"}`: "is one page of a listing",
		"[\"\xff\"]":                    "is not UTF-8",
	} {
		if entries, err := Read(strings.NewReader(content)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v %v, expected %q", content, entries, err, want)
		}
	}
}

// FuzzReadNodeList: every entry is a valid node or has a refusal. A valid node that is written can
// be read again and is the same.
func FuzzReadNodeList(f *testing.F) {
	f.Add([]byte("[" + seedNode + "]"))
	f.Add([]byte(`{"nodes": [{"node_id": "n", "max_concurrency": 1, "installed_services": [{"type": "a"}], "pool_ids": [1]}]}`))
	f.Add([]byte(`[{"node_id": "n", "resources": {"max_concurrency": 1e1}}, null]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := Read(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		seen := make(map[string]bool)
		for _, e := range entries {
			for _, bad := range e.refusals {
				if bad.field == "" || bad.reason == "" || len(e.refusals) > maxRefusals {
					t.Fatalf("refused without a reason: %+v", e)
				}
			}
			if e.refusals != nil {
				continue
			}
			if err := e.node.Validate("node"); err != nil || seen[e.node.ID] {
				t.Fatalf("read %+v: %v", e.node, err)
			}
			seen[e.node.ID] = true
			own, err := json.Marshal([]freeslot.Node{e.node})
			if err != nil {
				t.Fatal(err)
			}
			again, err := Read(strings.NewReader(string(own)))
			if err != nil || again[0].refusals != nil {
				t.Fatalf("%s: %v %+v; want no error, again[0].refusals == nil", own, err, again)
			}
			same := found{}
			same.Node = again[0].node
			if d := same.differences(&e); d != nil {
				t.Fatalf("%s: %v; want d == nil", own, d)
			}
		}
	})
}
