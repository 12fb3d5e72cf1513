package lock

import (
	"errors"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestFence: equal or higher tokens pass, lower ones change nothing.
func TestFence(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx, client, tag := bounded(t), redis.Client(t), redis.Prefix(t)+"{profile}"
		f := NewFence(`redis.call('SET', KEYS[1], ARGV[1]) return {#KEYS, #ARGV, redis.call('GET', KEYS[1])}`)
		const big = 1_700_000_000_000_000 // what tokens are like: Redis' microseconds
		for _, step := range []struct {
			token int64
			value string
			ok    bool
		}{{7, "a", true}, {7, "b", true}, {8, "c", true}, {7, "d", false}, {big + 1, "e", true}, {big, "f", false}, {9, "g", false}, {big + 1, "h", true}} {
			got, err := f.Run(ctx, client, tag+":fence", step.token, []string{tag + ":body"}, []string{step.value})
			if !step.ok {
				if !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "is lower than") {
					t.Errorf(`%d: %v; want errors.Is(err, ErrStale), strings.Contains(err.Error(), "is lower than")`, step.token, err)
				}
				if now, err := client.Do(ctx, client.B().Get().Key(tag+":body").Build()).ToString(); err != nil || now == step.value {
					t.Errorf("%d: %q %v; want no error, now != %v", step.token, now, err, step.value)
				}
				continue
			}
			parts, errParts := got.ToArray()
			if err != nil || errParts != nil || len(parts) != 3 {
				t.Fatalf("%d: %v %v; want no error, errParts == nil, len(parts) == 3", step.token, err, errParts)
			}
			keys, _ := parts[0].AsInt64()
			args, _ := parts[1].AsInt64()
			if now, _ := parts[2].ToString(); keys != 1 || args != 1 || now != step.value {
				t.Errorf("%d: %d keys, %d arguments, %q", step.token, keys, args, now)
			}
		}
		if _, err := NewFence("return redis.call('NONSENSE')").Run(ctx, client, tag+":fence", big+1, nil, nil); err == nil || errors.Is(err, ErrStale) {
			t.Error(err)
		}
		// Other clients send the source themselves.
		err := client.Do(ctx, client.B().Eval().Script(f.Source()).Numkeys(2).Key(tag+":fence", tag+":body").Arg("5", "x").Build()).Error()
		if err == nil || !strings.HasPrefix(err.Error(), "STALE ") {
			t.Error(err)
		}
	})
}
