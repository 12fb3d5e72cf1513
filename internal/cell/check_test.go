package cell

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestCheckServer(t *testing.T) {
	t.Parallel()
	good := func(change map[string]string) map[string]string {
		info := map[string]string{"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "aof_enabled": "1", "cluster_enabled": "0"}
		for field, value := range change {
			if value == "-" {
				delete(info, field)
			} else {
				info[field] = value
			}
		}
		return info
	}
	for name, c := range map[string]struct {
		change   map[string]string
		warnings []string // a part of each
		err      string   // a part of it
	}{
		"good":                 {},
		"later":                {change: map[string]string{"redis_version": "8.4.0"}},
		"two digits":           {change: map[string]string{"redis_version": "10.0.0"}},
		"a fork's release":     {change: map[string]string{"redis_version": "7.2.4-rc1"}},
		"old":                  {change: map[string]string{"redis_version": "6.2.14"}, err: `"6.2.14", expected 7.0 or later: upgrade`},
		"odd version":          {change: map[string]string{"redis_version": "unstable"}, err: "expected 7.0 or later"},
		"empty version":        {change: map[string]string{"redis_version": ""}, err: "expected 7.0 or later"},
		"version untold":       {change: map[string]string{"redis_version": "-"}, warnings: []string{"does not tell its version"}},
		"evicts":               {change: map[string]string{"maxmemory_policy": "allkeys-lru"}, err: "CONFIG SET maxmemory-policy noeviction"},
		"evicts keys with TTL": {change: map[string]string{"maxmemory_policy": "volatile-ttl"}, err: "maxmemory-policy volatile-ttl"},
		"policy untold":        {change: map[string]string{"maxmemory_policy": "-"}, warnings: []string{"does not tell its maxmemory-policy"}},
		"no AOF":               {change: map[string]string{"aof_enabled": "0"}, warnings: []string{"CONFIG SET appendonly yes"}},
		"AOF untold":           {change: map[string]string{"aof_enabled": "-"}, warnings: []string{"does not tell whether it keeps an append-only file"}},
		"everything untold": {
			change:   map[string]string{"redis_version": "-", "maxmemory_policy": "-", "aof_enabled": "-", "cluster_enabled": "-"},
			warnings: []string{"version", "maxmemory-policy", "append-only"},
		},
	} {
		warnings, err := checkServer("host:1", good(c.change))
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, expected %q", name, err, c.err)
		}
		if len(warnings) != len(c.warnings) {
			t.Errorf("%s: warnings %q, expected %q", name, warnings, c.warnings)
			continue
		}
		for i, w := range warnings {
			if !strings.Contains(w, c.warnings[i]) || !strings.Contains(w, "host:1") {
				t.Errorf("%s: warning %q, expected %q and the address", name, w, c.warnings[i])
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	limited := func(o *rueidis.ClientOption) { o.Username, o.Password = "agent", "secret" }
	for name, c := range map[string]struct {
		options  []redistest.Option
		setup    []string // one command
		client   func(*rueidis.ClientOption)
		warnings []string
		err      string
	}{
		"good":   {options: []redistest.Option{redistest.AppendOnly("everysec")}},
		"no AOF": {warnings: []string{"appendonly yes"}},
		"evicts": {
			options: []redistest.Option{redistest.AppendOnly("everysec"), redistest.Args("--maxmemory-policy", "allkeys-lru")},
			err:     "CONFIG SET maxmemory-policy noeviction",
		},
		"INFO refused": {
			setup:    []string{"ACL", "SETUSER", "agent", "on", ">secret", "~*", "&*", "+@all", "-info"},
			client:   limited,
			warnings: []string{"does not let us read its settings"},
		},
		"writing refused": {
			options: []redistest.Option{redistest.AppendOnly("everysec")},
			setup:   []string{"ACL", "SETUSER", "agent", "on", ">secret", "~*", "&*", "+@all", "-set"},
			client:  limited, err: "version:schema",
		},
		"newer schema": {
			options: []redistest.Option{redistest.AppendOnly("everysec")},
			setup:   []string{"SET", "scheduler:version:schema", "4"}, err: "written by a newer release (schema 4, this one knows 3)",
		},
		"older schema": {
			options: []redistest.Option{redistest.AppendOnly("everysec")},
			setup:   []string{"SET", "scheduler:version:schema", "1"}, err: "written by an older release (schema 1, this one writes 3)",
		},
		"no schema of ours": {
			options: []redistest.Option{redistest.AppendOnly("everysec")},
			setup:   []string{"SET", "scheduler:version:schema", "x"}, err: `is "x", expected 3: no release wrote it`,
		},
		"schema is no string": {
			options: []redistest.Option{redistest.AppendOnly("everysec")},
			setup:   []string{"SADD", "scheduler:version:schema", "x"}, err: "scheduler:version:schema",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t, c.options...)
			client := server.Client(t)
			if c.setup != nil {
				if err := client.Do(t.Context(), client.B().Arbitrary(c.setup...).Build()).Error(); err != nil {
					t.Fatal(err)
				}
			}
			checked := client
			if c.client != nil {
				checked = server.Client(t, c.client)
			}
			for range 2 { // what the first call writes does not disturb the second
				warnings, err := Check(t.Context(), checked, Layout{Prefix: DefaultPrefix})
				if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
					t.Errorf("error %v, expected %q", err, c.err)
				}
				if len(warnings) != len(c.warnings) || len(warnings) > 0 && !strings.Contains(warnings[0], c.warnings[0]) {
					t.Errorf("warnings %q, expected %q", warnings, c.warnings)
				}
			}
			if c.err == "" {
				schema, err := client.Do(t.Context(), client.B().Get().Key("scheduler:version:schema").Build()).ToString()
				if err != nil || schema != strconv.Itoa(SchemaVersion) {
					t.Errorf("schema %q, %v", schema, err)
				}
			}
		})
	}
}

func TestCheckSilentServer(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := server.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	server.Pause()
	_, err := Check(ctx, client, Layout{Prefix: DefaultPrefix})
	server.Resume()
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("error %v", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	if err := (Config{}).WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"key_prefix":      func(c *Config) { c.Layout.Prefix = "a:b" },
		"tag":             func(c *Config) { c.Layout.Tag = "a}b" },
		"heartbeat_limit": func(c *Config) { c.HeartbeatLimit = time.Microsecond },
		"call_timeout":    func(c *Config) { c.CallTimeout = -time.Second },
		"retention":       func(c *Config) { c.Retention = time.Nanosecond },
		"queue_limit":     func(c *Config) { c.QueueLimit = -1 },
	} {
		c := Config{}.WithDefaults()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v; want an error, strings.Contains(err.Error(), name)", name, err)
		}
	}
}
