package lock

import (
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/redis/redistest"
)

// TestAccess: the role has no more than locks need. That this is enough show all tests of this package, which run with it.
func TestAccess(t *testing.T) {
	t.Parallel()
	a := Access("lock")
	if !slices.Equal(a.Keys, []string{"lock:*"}) || !slices.Equal(a.Channels, []string{"lock:*"}) || len(a.Scripts)+len(a.Categories)+len(a.Reads) > 0 {
		t.Errorf("%+v", a)
	}
	for _, command := range []string{"keys", "scan", "config", "flushall", "acl", "xadd", "script|flush", "psubscribe"} {
		if slices.Contains(a.Commands, command) {
			t.Errorf("the role may call %s", command)
		}
	}
	redis := redistest.Shared(t)
	raw := redis.Client(t)
	if err := do(t, raw, append([]string{"ACL", "SETUSER", "narrow"}, a.Rules()...)...).Error(); err != nil {
		t.Fatal(err)
	}
	for command, allowed := range map[string]bool{
		"PEXPIRE lock:held:k 1":        true,
		"ZADD lock:queue:{x}:k 1 a":    true,
		"PUBLISH lock:release:k x":     true,
		"PEXPIRE scheduler:jobs:1 1":   false,
		"PUBLISH scheduler:events x":   false,
		"FLUSHALL":                     false,
		"XADD lock:audit * a b":        false,
		"CONFIG GET maxmemory":         false,
		"SCRIPT FLUSH":                 false,
		"ZREMRANGEBYSCORE lock:a 1 2":  true,
		"HGETALL lock:held:k":          false,
		"SPUBLISH lock:wake:{x}:p x":   true,
		"SSUBSCRIBE lock:wake:{x}:p":   true,
		"SUBSCRIBE lock:release:other": true,
	} {
		said, err := do(t, raw, append([]string{"ACL", "DRYRUN", "narrow"}, strings.Fields(command)...)...).ToString()
		if err != nil || (said == "OK") != allowed {
			t.Errorf("%s: %q, %v", command, said, err)
		}
	}
}
