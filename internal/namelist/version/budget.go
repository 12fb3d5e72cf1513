package version

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/namelist"
)

const (
	// memoryShare is how much of maxmemory a server may use after a build.
	memoryShare = 0.7
	// segmentBytes is what a segment needs in addition to its entries: key, seal, objects, and what
	// the allocator rounds up.
	segmentBytes = 320
	// tableBytes is what each entry of a segment needs in addition to its id, if one id is so long
	// that Redis uses a hash table.
	tableBytes = 96
	// filterBits is the number of bits that a key needs in a filter.
	filterBits = 9.8
	// sampled is the number of segments that are examined after a build.
	sampled = 64
)

// BudgetError is returned for a build that would need too much of a list server.
type BudgetError struct {
	Bytes    int64 // bytes that the build needs
	Used     int64 // bytes in use: by lists, or by the whole server
	Reserved int64 // by other running builds
	Limit    int64
	What     string // names what has the limit
}

func (e *BudgetError) Error() string {
	reserved := ""
	if e.Reserved > 0 {
		reserved = fmt.Sprintf(
			", and %d are reserved by lists that expect ids, and by builds that run, which this one may have made fail, too",
			e.Reserved,
		)
	}
	return fmt.Sprintf(
		"the version needs %d bytes, and %d are used%s, of %d that %s allows", e.Bytes, e.Used, reserved, e.Limit, e.What,
	)
}

// budget refuses a build that does not fit. It reserves first, and checks afterwards: of two
// simultaneous builds at least one sees the other. What other builds have already written counts
// twice.
func (s *Segments) budget(ctx context.Context, need namelist.Reservation, b *Budget) (err error) {
	lists, reserved := int64(0), int64(0)
	if b.Reserve != nil {
		if lists, reserved, err = b.Reserve(ctx, need); err != nil {
			return err
		}
	}
	if b.MaxBytes > 0 && lists+reserved+need.Bytes > b.MaxBytes {
		return &BudgetError{Bytes: need.Bytes, Used: lists, Reserved: reserved, Limit: b.MaxBytes, What: "max_bytes"}
	}
	used, most, err := s.Memory(ctx)
	if err != nil {
		return err
	}
	if limit := int64(memoryShare * float64(most)); most > 0 && used+reserved+need.Bytes > limit {
		return &BudgetError{Bytes: need.Bytes, Used: used, Reserved: reserved, Limit: limit, What: "70 % of maxmemory"}
	}
	return nil
}

// Memory returns the memory that the server uses, and its maxmemory; 0 means no limit. On a cluster
// it adds up the masters.
func (s *Segments) Memory(ctx context.Context) (used, most int64, err error) {
	limited := true
	for addr, node := range s.client.Nodes() {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		text, err := node.Do(ctx, node.B().Info().Section("memory", "replication").Build()).ToString()
		cancel()
		if err != nil {
			return 0, 0, fmt.Errorf("ask %s for its memory: %w", addr, err)
		}
		info := make(map[string]string)
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			info[name] = value
		}
		if info["role"] == "slave" {
			continue
		}
		n, err := strconv.ParseInt(info["used_memory"], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("ask %s for its memory: used_memory is %q", addr, info["used_memory"])
		}
		limit, _ := strconv.ParseInt(info["maxmemory"], 10, 64)
		used, most, limited = used+n, most+limit, limited && limit > 0
	}
	if !limited {
		most = 0
	}
	return used, most, nil
}

// segmented returns how many segments a version should have, so that none has more entries than the
// compact encoding takes, and how many bytes that needs. ids has the sizes.
func (s *Segments) segmented(ids sorted) (segments uint32, bytes int64) {
	segments = segmentsOf(ids.Count, s.cfg.Entries-1)
	bytes = ids.Bytes + segmentBytes*int64(segments) + int64(float64(ids.Count)*filterBits/8)
	tables := min(ids.Long, int64(segments))
	return segments, bytes + tables*(ids.Count/int64(segments)+1)*tableBytes
}

// segmentsOf returns the least number of segments such that in a hundred builds no segment is
// expected to have more than most entries: the number of entries in a segment has a Poisson
// distribution.
func segmentsOf(count int64, most int) uint32 {
	if count <= int64(most) {
		return 1
	}
	for mean := float64(most); mean > 1; mean *= 0.99 {
		segments := math.Ceil(float64(count) / mean)
		k := float64(most + 1)
		lgamma, _ := math.Lgamma(k + 1)
		// The terms after the first sum to less than a geometric series.
		if tail := math.Exp(k*math.Log(mean)-mean-lgamma) / (1 - mean/k); segments*tail < 0.01 {
			return uint32(segments)
		}
	}
	return uint32(count)
}

// measure examines some segments: their encoding, if none has a long id, and their size. bytes is
// an estimate for all segments.
func (s *Segments) measure(
	ctx context.Context, list string, v *namelist.Version, compact bool,
) (bytes int64, err error) {
	n := min(v.Segments, sampled)
	for i := range n {
		key := s.segmentKey(list, v, uint32(uint64(i)*uint64(v.Segments)/uint64(n)))
		size, err := s.runner.Do(ctx, "lists_measure", s.runner.B().MemoryUsage().Key(key).Build()).AsInt64()
		if err != nil {
			return 0, fmt.Errorf("ask for the size of segment %s: %w", key, err)
		}
		bytes += size
		encoding, err := s.runner.Do(ctx, "lists_measure", s.runner.B().ObjectEncoding().Key(key).Build()).ToString()
		if err != nil {
			return 0, fmt.Errorf("ask for the encoding of segment %s: %w", key, err)
		}
		if compact && encoding == "hashtable" {
			return 0, fmt.Errorf("segment %s is a hashtable, which needs four times the memory: hash-max-listpack-entries of "+
				"the list server must be at least %d, "+
				"and hash-max-listpack-value 64", key, s.cfg.Entries)
		}
	}
	return bytes * int64(v.Segments) / int64(n), nil
}
