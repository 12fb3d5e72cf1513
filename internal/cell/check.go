package cell

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// SchemaVersion is the version of the key layout that this release reads and writes.
const SchemaVersion = 1

const checkTimeout = 5 * time.Second

// Check looks whether Redis can be trusted with jobs, before the first is
// accepted. Warnings are settings that cost safety or that cannot be read; an
// error says what must be changed, and how. It writes the schema version where
// there is none.
func Check(ctx context.Context, client rueidis.Client, layout Layout) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for addr, node := range client.Nodes() {
		info, err := serverInfo(ctx, node)
		if err != nil {
			var refused *rueidis.RedisError
			if !errors.As(err, &refused) {
				return nil, fmt.Errorf("redis at %s does not answer: %w", addr, err)
			}
			warnings = append(warnings, fmt.Sprintf("redis at %s does not let us read its settings (%v): "+
				"make sure that it is 7.0 or later, maxmemory-policy is noeviction and appendonly is yes", addr, err))
			continue
		}
		w, err := checkServer(addr, info)
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, w...)
	}
	return warnings, checkSchema(ctx, client, layout)
}

// serverInfo reads INFO's sections that Check needs as one map.
func serverInfo(ctx context.Context, client rueidis.Client) (map[string]string, error) {
	text, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		return nil, err
	}
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

func checkServer(addr string, info map[string]string) (warnings []string, err error) {
	if info["cluster_enabled"] == "1" {
		return nil, fmt.Errorf("redis at %s runs in cluster mode, which this release does not support: use a standalone server, or sentinels", addr)
	}
	version, told := info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); !told {
		warnings = append(warnings, fmt.Sprintf("redis at %s does not tell its version: make sure that it is 7.0 or later", addr))
	} else if err != nil || n < 7 {
		return nil, fmt.Errorf("redis at %s is version %q, expected 7.0 or later: upgrade the server", addr, version)
	}
	switch policy := info["maxmemory_policy"]; policy {
	case "noeviction":
	case "":
		warnings = append(warnings, fmt.Sprintf("redis at %s does not tell its maxmemory-policy: make sure that it is noeviction", addr))
	default:
		return nil, fmt.Errorf("redis at %s has maxmemory-policy %s, which deletes jobs when memory runs short, expected noeviction: "+
			"run `redis-cli CONFIG SET maxmemory-policy noeviction` and put the same into redis.conf", addr, policy)
	}
	switch info["aof_enabled"] {
	case "1":
	case "":
		warnings = append(warnings, fmt.Sprintf("redis at %s does not tell whether it keeps an append-only file: without one a restart loses jobs", addr))
	default:
		warnings = append(warnings, fmt.Sprintf("redis at %s keeps no append-only file: a restart loses jobs; "+
			"run `redis-cli CONFIG SET appendonly yes` and put the same into redis.conf", addr))
	}
	return warnings, nil
}

func checkSchema(ctx context.Context, client rueidis.Client, layout Layout) error {
	key := layout.Schema()
	set := client.B().Set().Key(key).Value(strconv.Itoa(SchemaVersion)).Nx().Build()
	if err := client.Do(ctx, set).Error(); err != nil && !rueidis.IsRedisNil(err) {
		return fmt.Errorf("write %s: %w", key, err)
	}
	text, err := client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	found, err := strconv.Atoi(text)
	switch {
	case err == nil && found == SchemaVersion:
		return nil
	case err == nil && found > SchemaVersion:
		return fmt.Errorf("the data under %s was written by a newer release (schema %d, this one knows %d): upgrade this process, or set another redis.key_prefix",
			layout.Prefix, found, SchemaVersion)
	default:
		// There has been no older schema, so there is nothing to migrate from.
		return fmt.Errorf("%s is %q, expected %d: no release wrote it; delete the data with "+
			"`redis-cli --scan --pattern '%s:*' | xargs redis-cli del`, or set another redis.key_prefix", key, text, SchemaVersion, layout.Prefix)
	}
}

// MemoryUse is the share of its maxmemory that Redis uses, from 0; 0 when there is
// no limit, or Redis does not tell. On several servers it is the highest.
func (c *Cell) MemoryUse(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	highest := 0.0
	for addr, node := range c.client.Nodes() {
		info, err := serverInfo(ctx, node)
		if err != nil {
			return 0, fmt.Errorf("memory of redis at %s: %w", addr, err)
		}
		used, usedErr := strconv.ParseFloat(info["used_memory"], 64)
		limit, limitErr := strconv.ParseFloat(info["maxmemory"], 64)
		if usedErr == nil && limitErr == nil && limit > 0 {
			highest = max(highest, used/limit)
		}
	}
	return highest, nil
}
