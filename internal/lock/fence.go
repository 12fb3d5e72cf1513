package lock

import (
	"context"
	_ "embed" // for the check
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// fenceCheck is the check in front of the caller's script. It touches no key of a lock, so it does
// not belong to scripts.
//
//go:embed fence.lua
var fenceCheck string

// ErrStale is returned by Fence.Run for a holder whose token is lower than one that the resource
// has seen: another holder has had the lock since. Nothing was written.
var ErrStale = errors.New("fencing token is stale")

// staleReply begins the answer to a stale token.
const staleReply = "STALE "

// Fence is a caller's script that Redis runs only for the newest holder of a lock. Check and script
// are one step. It protects a resource from a holder that was stopped between its look at the clock
// and its write, which no lock can do.
//
// The resource keeps the highest token that it has seen in a key of its own, the fence, which must
// live as long as the resource. An equal or higher token passes. A lower one gets ErrStale.
type Fence struct {
	text string
	lua  *rueidis.Lua
}

// NewFence puts the check in front of a Lua script. The script uses KEYS and ARGV as it would
// without the check. NewFence does no I/O.
func NewFence(lua string) *Fence {
	text := fenceCheck + "\n" + lua
	return &Fence{text: text, lua: rueidis.NewLuaScript(text)}
}

// Source returns the whole script, for callers with another Redis client. KEYS[1] is the fence and
// ARGV[1] the token; the caller's KEYS and ARGV follow. A stale token gets an error that begins
// with STALE.
func (f *Fence) Source() string { return f.text }

// Run runs the script on client. On a cluster, the fence and keys must share a hash tag. Errors:
// ErrStale, or Redis' error. A call without an answer may have been carried out.
func (f *Fence) Run(
	ctx context.Context, client rueidis.Client, fence string, token int64, keys, args []string,
) (rueidis.RedisMessage, error) {
	result, err := f.lua.Exec(
		ctx, client, append([]string{fence}, keys...), append([]string{strconv.FormatInt(token, 10)}, args...),
	).ToMessage()
	if answer, ok := rueidis.IsRedisErr(err); ok && !answer.IsNil() && strings.HasPrefix(answer.Error(), staleReply) {
		return result, fmt.Errorf("%w: %s", ErrStale, strings.TrimPrefix(answer.Error(), staleReply))
	}
	return result, err
}
