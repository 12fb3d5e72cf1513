package cell

import "fmt"

const (
	hashSlots = 16384
	// tagLetters are what tags are made of; they are short and safe in shells.
	tagLetters = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// Tags are the hash tags of n cells, 1 to MaxCells: the hash slots of the cells are
// evenly spaced, that of cell i is floor((2i+1) * 16384 / 2n). They name the cells'
// keys for ever, so the search that finds them must not change.
func Tags(n int) []string {
	if n < 1 || n > MaxCells {
		panic(fmt.Sprintf("cell: %d cells, expected 1 to %d", n, MaxCells))
	}
	wanted := make(map[uint16]int, n)
	for i := range n {
		wanted[uint16((2*i+1)*hashSlots/(2*n))] = i
	}
	tags := make([]string, n)
	// The shortest tags first, each length in the order of tagLetters.
	for length := 1; len(wanted) > 0; length++ {
		searchTags(make([]byte, 0, length), 0, wanted, tags)
	}
	return tags
}

// searchTags tries every tag that begins with head, whose CRC is crc, and fills cap(head).
func searchTags(head []byte, crc uint16, wanted map[uint16]int, tags []string) {
	if len(head) == cap(head) {
		if i, ok := wanted[crc%hashSlots]; ok {
			tags[i] = string(head)
			delete(wanted, crc%hashSlots)
		}
		return
	}
	for i := 0; i < len(tagLetters) && len(wanted) > 0; i++ {
		searchTags(append(head, tagLetters[i]), crc16Byte(crc, tagLetters[i]), wanted, tags)
	}
}

// Layouts names the keys of n cells, 1 to MaxCells, in the order of their indexes.
// One cell on a standalone server has no tag.
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

// Slot is the hash slot of all keys with the layout's tag; false without a tag,
// where keys have slots of their own.
func (l Layout) Slot() (slot int, ok bool) {
	return int(crc16(l.Tag) % hashSlots), l.Tag != ""
}

// NodeCell is the index of a node's cell: CRC16 of its id, as Redis Cluster
// computes it, modulo the number of cells.
func NodeCell(node string, cells int) int { return int(crc16(node)) % cells }

// crc16 is CRC16-CCITT (XMODEM), https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/.
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
