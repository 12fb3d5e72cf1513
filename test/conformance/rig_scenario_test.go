package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// scenario is one file of the folders client and node.
type scenario struct {
	name string
	// Why says what the scenario shows.
	Why string
	// Servers is the number of addresses; 0 means 1.
	Servers int
	// Let holds values of placeholders: any value, or a text repeated that many times.
	Let   map[string]repeated
	Steps []map[string]any
}

type repeated struct {
	Repeat string
	Times  int
}

// readScenarios reads all scenarios of a folder.
func readScenarios(t *testing.T, folder string) []*scenario {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("folder %s has no scenario (%v)", folder, err)
	}
	all := make([]*scenario, len(files))
	for i, file := range files {
		all[i] = readScenario(t, file)
	}
	return all
}

func readScenario(t *testing.T, file string) *scenario {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &scenario{name: strings.TrimSuffix(filepath.Base(file), ".yaml")}
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	if err := decoder.Decode(s); err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	s.Servers = max(s.Servers, 1)
	if s.Why == "" || len(s.Steps) == 0 {
		t.Fatalf("%s: expected why and steps", file)
	}
	for i, step := range s.Steps {
		if len(step) != 1 {
			t.Fatalf("%s: step %d has %d keys, expected one", file, i+1, len(step))
		}
	}
	return s
}

// object is a JSON object of a step or a message.
type object = map[string]any

// objectOf returns the value of a step that is an object, or empty.
func objectOf(t *testing.T, v any) object {
	t.Helper()
	if v == nil {
		return object{}
	}
	o, ok := v.(object)
	if !ok {
		t.Fatalf("%v is no object", v)
	}
	return o
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
