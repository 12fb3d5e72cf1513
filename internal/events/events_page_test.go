package events

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/node/collector"
)

// TestEventsPage holds docs/events.md against the codec: its example has an event of each kind, in
// order and in canonical form, with the bodies of agents, and its table has each kind under its
// name.
func TestEventsPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[Kind]any{Register: new(freeslot.Node), Heartbeat: new(collector.Resources)}
	seen := make(map[Kind]bool)
	for _, block := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if block[1] == "redis" {
			continue
		}
		for line := range strings.Lines(block[2]) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "at version kind ") {
				continue
			}
			e, err := Decode(line)
			if err != nil {
				t.Errorf("%q: %v; want no error", line, err)
				continue
			}
			if canonical := string(e.Append(nil)); canonical != line {
				t.Errorf("%q should be %q", line, canonical)
			}
			if body := bodies[e.Kind]; body != nil {
				decoder := json.NewDecoder(strings.NewReader(e.Body))
				decoder.DisallowUnknownFields()
				err := decoder.Decode(body)
				if again, _ := json.Marshal(body); err != nil || string(again) != e.Body {
					t.Errorf("%q has the body %s, %v", line, again, err)
				}
			}
			if e.Kind == Offline && e.Body != Reaped {
				t.Errorf("%q: expected %s", line, Reaped)
			}
			if seen[e.Kind] = true; e.Revision != uint64(len(seen)) {
				t.Errorf("%q is message %d of the example", line, len(seen))
			}
		}
	}
	for _, k := range Kinds() {
		if row := "| `" + string(k) + "` | `" + k.String() + "` |"; !seen[k] || !strings.Contains(string(text), row) {
			t.Errorf("kind %c: in the example is %v; the table should have a row %s", k, seen[k], row)
		}
	}
}
