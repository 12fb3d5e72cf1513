package console

import (
	"context"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var sources embed.FS

var scripts = script.MustLoad(sources)

// keys holds the names of all keys of this package. They are in the first cell of a system.
type keys struct {
	// seals is a list of the keys that seal sessions: when each was made, and the key.
	seals string
}

func keysOf(l script.Layout) keys { return keys{seals: l.Key("console:keys", "")} }

// store keeps the keys that seal sessions in Redis.
type store struct {
	runner *script.Runner
	keys   keys
}

func newStore(first *script.Runner) *store {
	first.Add(scripts)
	return &store{runner: first, keys: keysOf(first.Layout())}
}

// seals returns the shared keys, the newest first. It adds fresh if the newest is older than limit.
func (s *store) seals(ctx context.Context, fresh []byte, limit time.Duration) ([][]byte, error) {
	args := []string{hex.EncodeToString(fresh), strconv.FormatInt(limit.Milliseconds(), 10)}
	lines, err := s.runner.Call(ctx, scripts["keys"], []string{s.keys.seals}, args).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("read the keys of sessions: %w", err)
	}
	var all [][]byte
	for _, line := range lines {
		_, text, _ := strings.Cut(line, " ")
		key, err := hex.DecodeString(text)
		if err != nil || len(key) != sealBytes {
			return nil, fmt.Errorf("a key of sessions in Redis is no key of %d bytes", sealBytes)
		}
		all = append(all, key)
	}
	return all, nil
}
