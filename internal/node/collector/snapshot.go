package collector

import (
	"encoding/json"
	"maps"
)

// MaxJSONBytes bounds the JSON of the snapshots of a [Runner] with the ages of the figures. A
// heartbeat with everything else in it then stays below the limit of a cell (16 KiB).
const MaxJSONBytes = 12 << 10

// ageBytes is the space in JSON that an age of up to MaxInterval and more takes, without its name.
const ageBytes = len(`"":1000000000,`)

// Snapshot holds the figures by type. A snapshot from a [Runner] never changes and must not be
// changed. Its values are float64 (finite), int64, bool and string, so that its JSON has no errors.
type Snapshot map[string]Metrics

// Flat returns the values by "type.field", such as "memory.usage". The caller owns the map, which
// is never nil.
func (s Snapshot) Flat() map[string]any {
	flat := make(map[string]any)
	for name, m := range s {
		for field, v := range m {
			flat[name+"."+field] = v
		}
	}
	return flat
}

// jsonSize returns the length of the snapshot's JSON.
func (s Snapshot) jsonSize() int {
	raw, _ := json.Marshal(s) // never fails, see above
	return len(raw)
}

// equal compares snapshots of clean values.
func (s Snapshot) equal(other Snapshot) bool {
	return maps.EqualFunc(s, other, func(a, b Metrics) bool { return maps.Equal(a, b) })
}
