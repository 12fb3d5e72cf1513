package lock

import (
	"context"
	_ "embed" // of the check
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// fenceCheck is the check in front of the caller's script. It touches no key of locks, and so is
// none of the scripts.
//
//go:embed fence.lua
var fenceCheck string

// ErrStale is returned by Fence.Run for a holder whose token is lower than one that the resource
// has seen: another one has held the lock since, and nothing was written.
var ErrStale = errors.New("fencing token is stale")

// staleReply begins the answer of a fenced script to a stale token.
const staleReply = "STALE "

// Fence is a script of the caller's that Redis runs only for the newest holder of a lock. Check and
// script are one step. It is what protects a resource from a holder that was stopped between its
// look at the clock and its write: no lock can.
//
// The resource keeps the highest token that it has seen in a key of its own, the fence, which must
// live as long as the resource. A token that is equal or higher passes. A lower one is ErrStale.
type Fence struct {
	text string
	lua  *rueidis.Lua
}

// NewFence puts the check in front of a Lua script, which uses KEYS and ARGV as it would without
// it. It does no I/O.
func NewFence(lua string) *Fence {
	text := fenceCheck + "\n" + lua
	return &Fence{text: text, lua: rueidis.NewLuaScript(text)}
}

// Source is the whole script, for callers with another client for Redis. KEYS[1] is the fence and
// ARGV[1] the token; the script's own follow. A stale token is answered with an error that begins
// with STALE.
func (f *Fence) Source() string { return f.text }

// Run runs the script on client. On a cluster the fence and keys share a hash tag. Errors:
// ErrStale; what Redis said. A call without an answer may have been carried out.
func (f *Fence) Run(ctx context.Context, client rueidis.Client, fence string, token int64, keys, args []string) (rueidis.RedisMessage, error) {
	result, err := f.lua.Exec(ctx, client, append([]string{fence}, keys...), append([]string{strconv.FormatInt(token, 10)}, args...)).ToMessage()
	if answer, ok := rueidis.IsRedisErr(err); ok && !answer.IsNil() && strings.HasPrefix(answer.Error(), staleReply) {
		return result, fmt.Errorf("%w: %s", ErrStale, strings.TrimPrefix(answer.Error(), staleReply))
	}
	return result, err
}
