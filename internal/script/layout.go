package script

import "fmt"

const (
	// HashSlots is the number of hash slots in a Redis Cluster.
	HashSlots = 16384
	// tagLetters holds the letters of tags; they are safe in shells.
	tagLetters = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// Layout names the keys and channels of one cell. Its keys share a hash slot, so one script can
// change them together.
type Layout struct {
	// Prefix is the first part of every name; it separates several systems on one Redis.
	Prefix string
	// Tag is the hash tag that holds the cell's keys in one hash slot. It is empty for one cell on
	// a single server.
	Tag string
	// Sharded is true on Redis Cluster. Scripts then publish by sharded pub/sub (SPUBLISH,
	// SSUBSCRIBE) on the tagged channel, so only to the master that owns the cell.
	Sharded bool
}

// Key returns prefix:kind:{tag}:rest, where kind is the feature's family of keys and rest the id of
// the item. An empty rest is left out with its colon, and so is an empty tag.
func (l Layout) Key(kind, rest string) string {
	key := l.Prefix + ":" + kind + l.TagPart()
	if rest == "" {
		return key
	}
	return key + ":" + rest
}

// TagPart returns what a script needs as TAG for lib/key.lua: ':{tag}', or nothing without a tag.
func (l Layout) TagPart() string {
	if l.Tag == "" {
		return ""
	}
	return ":{" + l.Tag + "}"
}

// Slot returns the hash slot of all keys with the layout's tag. ok is false without a tag: each key
// then has a slot of its own.
func (l Layout) Slot() (slot int, ok bool) {
	return int(crc16(l.Tag) % HashSlots), l.Tag != ""
}

// Replicated returns the key that is written to learn how far Redis' replicas have come. It is the
// only key of this package, one in each cell.
func (l Layout) Replicated() string { return l.Key("replicated", "") }

// String returns the name of the cell for logs.
func (l Layout) String() string { return fmt.Sprintf("%s{%s}", l.Prefix, l.Tag) }

// Tags returns the hash tags of n cells. Their hash slots are evenly spaced: cell i has slot
// floor((2i+1) * 16384 / 2n). Tags are part of the cells' key names for ever, so the search that
// finds them must not change.
func Tags(n int) []string {
	if n < 1 || n > HashSlots {
		panic(fmt.Sprintf("script: %d cells, expected 1 to %d", n, HashSlots))
	}
	wanted := make(map[uint16]int, n)
	for i := range n {
		wanted[uint16((2*i+1)*HashSlots/(2*n))] = i
	}
	tags := make([]string, n)
	// The shortest tags first, each length in the order of tagLetters.
	for length := 1; len(wanted) > 0; length++ {
		searchTags(make([]byte, 0, length), 0, wanted, tags)
	}
	return tags
}

// searchTags tries every tag that begins with head and fills cap(head). crc is the CRC of head.
func searchTags(head []byte, crc uint16, wanted map[uint16]int, tags []string) {
	if len(head) == cap(head) {
		if i, ok := wanted[crc%HashSlots]; ok {
			tags[i] = string(head)
			delete(wanted, crc%HashSlots)
		}
		return
	}
	for i := 0; i < len(tagLetters) && len(wanted) > 0; i++ {
		searchTags(append(head, tagLetters[i]), crc16Byte(crc, tagLetters[i]), wanted, tags)
	}
}

// Layouts returns the layouts of n cells, in the order of their indexes. A single cell on a
// standalone server has no tag.
func Layouts(prefix string, n int, cluster bool) []Layout {
	if n == 1 && !cluster {
		return []Layout{{Prefix: prefix}}
	}
	layouts := make([]Layout, n)
	for i, tag := range Tags(n) {
		layouts[i] = Layout{Prefix: prefix, Tag: tag, Sharded: cluster}
	}
	return layouts
}

// CellOf returns the index of the cell that keeps the item with this name: the CRC16 of the name,
// as Redis Cluster computes it, modulo the number of cells.
func CellOf(name string, cells int) int { return int(crc16(name)) % cells }

// crc16 computes CRC16-CCITT (XMODEM),
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc = crc16Byte(crc, s[i])
	}
	return crc
}

func crc16Byte(crc uint16, b byte) uint16 {
	crc ^= uint16(b) << 8
	for range 8 {
		if crc&0x8000 != 0 {
			crc = crc<<1 ^ 0x1021
		} else {
			crc <<= 1
		}
	}
	return crc
}
