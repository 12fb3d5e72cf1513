package pool

import (
	"context"
	"embed"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var sources embed.FS

var scripts = script.MustLoad(sources)

// maxBytes bounds the configuration in its stored form.
const maxBytes = 1 << 20

// stored is the configuration as Redis has it, no matter who wrote it.
type stored struct {
	version    uint64 // the counter's version; 0 without a counter
	generation string // made together with the counter; empty without one
	server     string // names the history that the server's data belongs to
	kind       string // the type of the key in Redis; "none" without a document
	length     int    // of the document, in bytes
	// content is nil unless kind is "string" and length is at most maxBytes.
	content []byte
	// pausedKind is the same for what is paused; paused is empty unless it is "string" and at most
	// maxBytes long.
	pausedKind string
	paused     []byte
}

// stored reads what is in Redis. A value that an operator broke is not an error.
func (s *Store) stored(ctx context.Context) (stored, error) {
	reply, err := s.runner.Call(
		ctx, scripts["config_read"], []string{s.keys.document, s.keys.version, s.keys.paused},
		[]string{strconv.Itoa(maxBytes)},
	).ToArray()
	if err == nil {
		var out stored
		if out, err = decodeStored(reply); err == nil {
			return out, nil
		}
	}
	return stored{}, fmt.Errorf("read configuration: %w", err)
}

func decodeStored(reply []rueidis.RedisMessage) (out stored, err error) {
	if len(reply) != 8 {
		return out, fmt.Errorf("reply has %d values, expected 8", len(reply))
	}
	version, err := reply[0].AsInt64()
	if err != nil {
		return out, err
	}
	length, err := reply[4].AsInt64()
	if err != nil {
		return out, err
	}
	out.version, out.length = uint64(version), int(length)
	var content, paused string
	for i, target := range map[int]*string{
		1: &out.generation, 2: &out.server, 3: &out.kind, 5: &content, 6: &out.pausedKind, 7: &paused,
	} {
		if *target, err = reply[i].ToString(); err != nil {
			return stored{}, err
		}
	}
	if out.kind == "string" && out.length <= maxBytes {
		out.content = []byte(content)
	}
	out.paused = []byte(paused)
	return out, nil
}
