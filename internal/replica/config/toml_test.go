package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestDesignsOwnFile: the configuration file of the scheduler's design starts a replica. What works
// differently here is named with what replaced it.
func TestDesignsOwnFile(t *testing.T) {
	t.Parallel()
	cfg, err := config.LoadReplica(config.Options{File: "testdata/config.toml", Environ: []string{}})
	if err != nil {
		t.Fatal("refused:", err)
	}
	want := config.DefaultReplica()
	want.ReplicaID, want.LocklessCache, want.Warnings = cfg.ReplicaID, cfg.LocklessCache, cfg.Warnings
	want.Locked = config.Locked{Mirror: true, Verify: true}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Error("the file has the defaults, expected those:", diff)
	}
	const warnings = `lockless_cache.redis_pool_size has no effect: all commands share 1 pipelined connection to each server, which redis.connections sets
lockless_cache.cache_ttl_ms has no effect: a node stays in the cache until it falls silent for 8s, which heartbeat_limit sets
lockless_cache.pubsub_channels has no effect: the names of channels begin with "scheduler", which redis.key_prefix sets
lockless_cache.enable_data_sync compares the lock-based picture with the cache once a minute, and copies no nodes: schedctl nodes import does that`
	if diff := cmp.Diff(warnings, cfg.Warnings.Error()); diff != "" {
		t.Error(diff)
	}
}

func loadTOML(t *testing.T, text string) (config.Replica, []string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "freeslot.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.LoadReplica(config.Options{File: name, Environ: []string{}})
	if err == nil {
		return cfg, nil
	}
	return cfg, lines(t, err, name)
}

// TestTOML: TOML has the keys of YAML.
func TestTOML(t *testing.T) {
	t.Parallel()
	cfg, problems := loadTOML(t, "\ufeff"+`
listen = "127.0.0.1:0"
heartbeat_limit = "9s"
redis = {cells = 4, key_prefix = "other"}
cache.pubsub = false
[tracing]
sample_ratio = 1
[[tokens]]
token = "a"
tenant = "acme"
[[tokens]]
token = "b"
tenant = "ops"
role = "operator"
[tenants."a.b"]
weight = 3
[[pools]]
id = "p"
`)
	if problems != nil {
		t.Fatal("refused:", problems)
	}
	if cfg.HeartbeatLimit != 9*time.Second || cfg.Redis.Cells != 4 || cfg.Cache.PubSub || cfg.Tracing.SampleRatio != 1 ||
		len(cfg.Tokens) != 2 || cfg.Tokens[1].Role != identity.Operator || cfg.TenantWeight("a.b") != 3 || len(cfg.Pools) != 1 {
		t.Errorf("loaded %+v, expected the values of the file", cfg)
	}
}

// TestTOMLProblems: each problem names its line.
func TestTOMLProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no TOML": {"listen: x\n", []string{`FILE: line 1, column 7: expected '=' after key`}},
		"twice":   {"listen = 'a:1'\nlisten = 'a:1'\n", []string{`FILE: line 2, column 1: key listen is already defined`}},
		"unknown": {"[redis]\npool = 1\n", []string{
			"redis.pool is not a key of the configuration, expected url, urls, username, password_file, sentinel_username, " +
				"sentinel_password_file, tls, cells, key_prefix or connections (from FILE:2)",
		}},
		"kind":      {"\nwaiting_limit = 'x'\n", []string{`waiting_limit is "x", expected a whole number (from FILE:2)`}},
		"a date":    {"retention = 2026-01-01\n", []string{`retention is 2026-01-01, expected a duration such as 500ms, 8s or 1h30m (from FILE:1)`}},
		"in a list": {"[[tokens]]\ntoken = 'a'\ntenant = 'a'\n\n[[tokens]]\ntoken = 'b'\ntenant = 'b'\nrole = 'king'\n", []string{`tokens[1].role is "king", expected viewer, client, tenant-operator, operator or admin (from FILE:8)`}},
		"missing":   {"[[tokens]]\ntenant = 'a'\n[[tokens]]\ntenant = 'b'\ntoken = 'x'\n", []string{`tokens[0].token is missing, expected token or token_file (from FILE:1)`}},
		"inline":    {"tokens = [\n{token = 'a', tenant = 'a', role = 'king'},\n]\n", []string{`tokens[0].role is "king", expected viewer, client, tenant-operator, operator or admin (from FILE:1)`}},
	} {
		if _, problems := loadTOML(t, c.text); !cmp.Equal(c.want, problems) {
			t.Errorf("%s: the problems are %q, expected %q", name, problems, c.want)
		}
	}
}
