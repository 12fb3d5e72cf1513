package config_test

import (
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestLocked: each combination of the keys for a migration.
func TestLocked(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]config.Locked{
		"{}":                          {},
		"{enabled: true}":             {},
		"{enabled: false}":            {Enabled: true, Mirror: true},
		"{enable_legacy_write: true}": {Mirror: true},
		"{enable_legacy_write: false, enable_data_sync: true}":                 {Mirror: true, Verify: true},
		"{enabled: false, enable_legacy_write: false}":                         {Enabled: true, Mirror: true},
		"{enabled: false, enable_legacy_write: true, enable_data_sync: true}":  {Enabled: true, Mirror: true, Verify: true},
		"{enabled: true, enable_legacy_write: false, enable_data_sync: false}": {},
	} {
		cfg, problems := loadYAML(t, "lockless_cache: "+yaml+"\n")
		if problems != nil || cfg.Locked != want {
			t.Errorf("%s gives %+v, expected %+v: %v", yaml, cfg.Locked, want, problems)
		}
	}
}
