package filter

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

// The vectors of docs/namelist.md are what this release writes and reads, and its two procedures
// say of them what Contains says.
func TestVectors(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/namelist.md")
	if err != nil {
		t.Fatal(err)
	}
	const seed, buildID = 42, "00112233445566778899aabbccddeeff"
	keys := make([]uint64, 0, 3)
	for _, id := range []string{"user-1", "user-2", "user-3"} {
		keys = append(keys, form.Sum(seed, id))
	}
	for kind, contains := range map[Kind]func([]byte, uint64) bool{Fuse: fuseContains, Bloom: bloomContains} {
		var b Builder
		block, err := b.Build(kind, keys)
		if err != nil {
			t.Fatal(err)
		}
		wire := block.Append(nil, kind, buildID, 0, len(keys))
		if text := fold(wire); !strings.Contains(string(doc), text) {
			t.Errorf("docs/namelist.md has another %s block, expected\n%s", kind, text)
		}
		for _, key := range keys {
			if !contains(wire, key) {
				t.Errorf("%s: %#x is missing", kind, key)
			}
		}
		alike(t, kind, contains, block, wire)
		for i := range 1000 { // in a block of one word the place of a bit is the same with and without wrapping
			keys = append(keys, form.Sum(seed, fmt.Sprint("member-", i)))
		}
		if block, err = b.Build(kind, keys); err != nil {
			t.Fatal(err)
		}
		alike(t, kind, contains, block, block.Append(nil, kind, buildID, 0, len(keys)))
		keys = keys[:3]
	}
}

// alike fails unless a procedure of docs/namelist.md says of members and strangers what the library
// says.
func alike(t *testing.T, kind Kind, contains func([]byte, uint64) bool, block *Block, wire []byte) {
	t.Helper()
	for i := range 10_000 {
		for _, id := range []string{"stranger-", "member-"} {
			key := form.Sum(42, fmt.Sprint(id, i))
			if got, want := contains(wire, key), block.Contains(key); got != want {
				t.Fatalf("%s: %#x is %v, of the library %v", kind, key, got, want)
			}
		}
	}
}

// fold is hexadecimal, 16 bytes a line.
func fold(wire []byte) string {
	var b strings.Builder
	for ; len(wire) > 16; wire = wire[16:] {
		fmt.Fprintln(&b, hex.EncodeToString(wire[:16]))
	}
	return b.String() + hex.EncodeToString(wire)
}

// mix is of both procedures.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func fuseContains(wire []byte, key uint64) bool {
	length, count := binary.LittleEndian.Uint32(wire[40:]), binary.LittleEndian.Uint32(wire[44:])
	prints, m := wire[48:], mix(key+binary.LittleEndian.Uint64(wire[32:]))
	high, _ := bits.Mul64(m, uint64(count)*uint64(length))
	a := uint32(high)
	b := (a + length) ^ uint32(m>>18)&(length-1)
	c := (a + 2*length) ^ uint32(m)&(length-1)
	return prints[a]^prints[b]^prints[c] == byte(m^m>>32)
}

func bloomContains(wire []byte, key uint64) bool {
	hashes, words := binary.LittleEndian.Uint32(wire[40:]), uint64(binary.LittleEndian.Uint32(wire[44:]))
	m := mix(key)
	for i := range uint64(hashes) {
		bit := ((m + i*(m>>32|1)) & 0xffffffff) % (64 * words)
		if wire[48+bit/8]>>(bit%8)&1 == 0 {
			return false
		}
	}
	return true
}
