package lock

import (
	"context"
	"fmt"
	"strings"
)

// check refuses servers that cannot be trusted with locks.
func (m *Manager) check(ctx context.Context) error {
	client := m.commands.For(0)
	for addr, node := range client.Nodes() {
		info, err := node.Do(ctx, node.B().Info().Section("server", "memory").Build()).ToString()
		if err != nil {
			return fmt.Errorf("ask %s: %w", addr, err)
		}
		fields := make(map[string]string)
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			fields[name] = value
		}
		version := fields["redis_version"]
		var major int
		if _, err := fmt.Sscanf(version, "%d.", &major); err != nil || major < 7 {
			return fmt.Errorf("%s is Redis %q: expected 7.0 or later", addr, version)
		}
		if policy := fields["maxmemory_policy"]; policy != "" && policy != "noeviction" {
			return fmt.Errorf("%s may evict held locks (maxmemory-policy is %s): run CONFIG SET maxmemory-policy noeviction", addr, policy)
		}
	}
	return nil
}
