package config_test

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestNumbersAreDecimal: YAML would read 010 as 8.
func TestNumbersAreDecimal(t *testing.T) {
	t.Parallel()
	cfg, err := config.LoadReplica(config.Options{
		Environ: []string{"FREESLOT_LIMITS__MAX_BATCH=010"}, Flags: []config.Flag{{Name: "--replica-id", Path: "replica_id", Value: "r1"}},
	})
	if err != nil || cfg.Limits.MaxBatch != 10 {
		t.Errorf("%d, %v; want no error, cfg.Limits.MaxBatch == 10", cfg.Limits.MaxBatch, err)
	}
	_, err = config.LoadReplica(config.Options{Flags: []config.Flag{{Name: "--set limits.max_batch", Path: "limits.max_batch", Value: "0x10"}}})
	if err == nil || !strings.Contains(err.Error(), "max_batch") {
		t.Errorf("hexadecimal: %v", err)
	}
}
