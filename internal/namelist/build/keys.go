package build

import (
	"strconv"

	"github.com/freeslot/freeslot/internal/script"
)

// SegmentKey names a segment. Each has a hash tag of its own: a cluster would else keep a whole list
// in one slot.
func SegmentKey(prefix, list string, number int64, segment uint32) string {
	return dataKey(prefix, list, number, strconv.FormatUint(uint64(segment), 10)+"}")
}

// BlockKey names a block of a version's filter.
func BlockKey(prefix, list string, number int64, block uint32) string {
	return dataKey(prefix, list, number, "f"+strconv.FormatUint(uint64(block), 10)+"}")
}

func dataKey(prefix, list string, number int64, part string) string {
	layout := script.Layout{Prefix: prefix}
	return layout.Key("lists", "{"+list+"_"+strconv.FormatInt(number, 10)+"_"+part)
}
