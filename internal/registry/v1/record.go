package v1

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/registry"
)

// originField marks records that a bridge wrote, with originV2 as its value.
const (
	originField = "origin"
	originV2    = "v2"
)

// copyOf reads a record of the first version. The error says why the record cannot be copied.
func copyOf(service, id string, record map[string]string, interval time.Duration) (registry.Copy, error) {
	r := registry.Registration{
		Service: service, ID: id, Host: record["host"], Protocol: record["protocol"], Interval: interval,
		Unhealthy: record["healthy"] == "false", Disabled: record["enabled"] == "false",
	}
	r.Port, _ = strconv.Atoi(record["port"]) // 0 is refused below
	if w, err := strconv.ParseFloat(record["weight"], 64); err == nil {
		if w == 0 { // it wants no traffic
			r.Disabled = true
		} else {
			r.Weight = &w
		}
	}
	var labels map[string]any
	if raw := record["metadata"]; raw != "" {
		if err := json.Unmarshal([]byte(raw), &labels); err != nil {
			return registry.Copy{}, fmt.Errorf("metadata: %w", err)
		}
	}
	r.Metadata = make(map[string]string, len(labels))
	for key, value := range labels {
		if text, is := value.(string); is {
			r.Metadata[key] = text
			continue
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return registry.Copy{}, fmt.Errorf("metadata %s: %w", key, err)
		}
		r.Metadata[key] = string(raw)
	}
	c := registry.Copy{Registration: r.WithDefaults()}
	if raw := json.RawMessage(record["metrics"]); json.Valid(raw) {
		c.Metrics = raw
	}
	return c, c.Validate()
}

// recordOf returns an instance in the first version's form.
func recordOf(d *registry.Detail) []string {
	metadata, err := json.Marshal(d.Metadata)
	if err != nil || d.Metadata == nil {
		metadata = []byte("{}")
	}
	healthy := !d.Disabled && !d.Draining && !d.Unhealthy && d.Failing == ""
	return []string{
		"host", d.Host, "port", strconv.Itoa(d.Port), "protocol", d.Protocol, "healthy", strconv.FormatBool(healthy),
		"weight", strconv.FormatFloat(d.Weight, 'g', -1, 64), "enabled", strconv.FormatBool(!d.Disabled),
		"metadata", string(metadata), "metrics", cmp.Or(string(d.Metrics), "{}"), originField, originV2,
	}
}
