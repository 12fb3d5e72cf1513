package namelist

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

// Why says why a segment has no answer about an id; empty if it has one.
type Why string

// The reasons, as in HTTP.
const (
	WhySegment Why = "segment" // the segment is missing
	WhyMoved   Why = "moved"   // it belongs to another build
	WhyFormat  Why = "format"  // this release does not know its form
	WhyTimeout Why = "timeout" // its server gave no answer
	WhyInvalid Why = "invalid" // the list cannot have such an id
)

// ListFound is what a segment says of an id.
type ListFound struct {
	Member    bool  `json:"member"`
	ExpiresMS int64 `json:"expires_ms,omitzero" doc:"When the entry ends, by Redis' clock; absent for never. It may be over."`
	Why       Why   `json:"why,omitzero" doc:"Why nothing is known of the id: segment, moved, format, timeout or invalid."`
}

// Ask reads ids in the list's form from their segments of a version, on the version's list server.
// hashes[i] is the hash of ids[i].
func Ask(
	ctx context.Context, server rueidis.Client, prefix, list string, v *Version, ids []string, hashes []uint64,
) []ListFound {
	out, cmds := make([]ListFound, len(ids)), make(rueidis.Commands, len(ids))
	key := SegmentKeys(prefix, list, v.Number)
	for i, id := range ids {
		cmds[i] = server.B().Hmget().Key(key(form.Segment(hashes[i], v.Segments))).Field("", id).Build()
	}
	for i, result := range server.DoMulti(ctx, cmds...) {
		out[i] = readFound(result, v.Build)
	}
	return out
}

// readFound reads a seal and the value of an id.
func readFound(result rueidis.RedisResult, build string) ListFound {
	values, err := result.ToArray()
	if err != nil || len(values) != 2 {
		return ListFound{Why: WhyTimeout}
	}
	_, why := sealed(values[0], build)
	if why != "" || values[1].IsNil() {
		return ListFound{Why: why}
	}
	value, _ := values[1].ToString() // a field is text
	expires, ok := ParseExpiry(value)
	if !ok {
		return ListFound{Why: WhyFormat}
	}
	return ListFound{Member: true, ExpiresMS: expires}
}

// sealed returns the count in a segment's seal, or why the segment has no answer.
func sealed(seal rueidis.RedisMessage, build string) (count int, why Why) {
	if seal.IsNil() {
		return 0, WhySegment
	}
	text, _ := seal.ToString() // a field is text
	of, count, ok := ParseSeal(text)
	if !ok || of != build {
		return 0, WhyMoved
	}
	return count, ""
}

// ParseSeal reads the seal of a segment: its build id, and how many entries it has.
func ParseSeal(seal string) (build string, count int, ok bool) {
	build, rest, _ := strings.Cut(seal, " ")
	count, err := strconv.Atoi(rest)
	return build, count, err == nil && count >= 0
}

// ParseExpiry reads the value of an id: Unix ms, 0 for never.
func ParseExpiry(value string) (ms int64, ok bool) {
	if value == "" {
		return 0, true
	}
	ms, err := strconv.ParseInt(value, 10, 64)
	return ms, err == nil && ms > 0
}

// wholeChunk is the number of segments of a whole version that one call reads.
const wholeChunk = 100

// Whole reads all ids of a version, with the expiry of each in Unix ms, 0 for never. It checks all
// seals and the count. Use it for versions of up to MaxWhole ids.
func Whole(ctx context.Context, server rueidis.Client, prefix, list string, v *Version) (map[string]int64, error) {
	ids := make(map[string]int64, min(v.Count, MaxWhole))
	for first := uint32(0); first < v.Segments; first += wholeChunk {
		var cmds rueidis.Commands
		for i := first; i < min(first+wholeChunk, v.Segments); i++ {
			cmds = append(cmds, server.B().Hgetall().Key(SegmentKey(prefix, list, v.Number, i)).Build())
		}
		for i, result := range server.DoMulti(ctx, cmds...) {
			if err := readWhole(result, v.Build, ids); err != nil {
				return nil, fmt.Errorf("segment %d of version %d of list %s: %w", first+uint32(i), v.Number, list, err)
			}
		}
	}
	return ids, v.Complete(list, ids)
}

// Complete returns an error unless ids has as many entries as the version.
func (v *Version) Complete(list string, ids map[string]int64) error {
	if int64(len(ids)) != v.Count {
		return fmt.Errorf("version %d of list %s has %d ids, expected %d", v.Number, list, len(ids), v.Count)
	}
	return nil
}

// readWhole adds the ids of a segment.
func readWhole(result rueidis.RedisResult, build string, ids map[string]int64) error {
	fields, err := result.AsMap()
	if err != nil {
		return err
	}
	count, why := sealed(fields[""], build)
	if why != "" || count != len(fields)-1 {
		return fmt.Errorf("%d fields, seal: %s", len(fields), why)
	}
	for id, value := range fields {
		if id == "" {
			continue
		}
		text, _ := value.ToString() // a field is text
		expires, ok := ParseExpiry(text)
		if !ok {
			return errors.New("an expiry is no time")
		}
		ids[id] = expires
	}
	return nil
}
