package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

// check refuses servers that cannot be trusted with locks. It ignores members of a cluster that are
// down, and only logs what a server does not tell.
func check(ctx context.Context, client rueidis.Client, log *zap.Logger) error {
	for addr, node := range client.Nodes() {
		info, err := node.Do(ctx, node.B().Info().Build()).ToString()
		if err != nil {
			if client.Mode() != rueidis.ClientModeCluster && !errors.As(err, new(*rueidis.RedisError)) {
				return fmt.Errorf("redis at %s does not answer: %w", addr, err)
			}
			log.Warn("lock.server_unchecked", zap.String("addr", addr), zap.Error(err))
			continue
		}
		if err := checkServer(addr, info); err != nil {
			return err
		}
	}
	return nil
}

// checkServer checks the answer to INFO.
func checkServer(addr, info string) error {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	version := fields["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("redis at %s is version %q, expected 7.0 or later: upgrade the server", addr, version)
	}
	if policy := fields["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		return fmt.Errorf("redis at %s has maxmemory-policy %s, which deletes held locks when memory runs short, expected "+
			"noeviction: "+
			"run `redis-cli CONFIG SET maxmemory-policy noeviction` and put the same into redis.conf", addr, policy)
	}
	return nil
}
