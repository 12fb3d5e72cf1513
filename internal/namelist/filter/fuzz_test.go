package filter

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// resum gives a changed block a right checksum.
func resum(wire []byte) []byte {
	body := wire[:len(wire)-sumBytes]
	binary.LittleEndian.PutUint64(wire[len(body):], xxh3.Hash(body))
	return wire
}

// A hostile block is refused, or can be asked without a panic.
func FuzzDecode(f *testing.F) {
	var b Builder
	for _, kind := range []Kind{Fuse, Bloom} {
		for _, n := range []int{0, 1, 50} {
			keys := make([]uint64, n)
			for i := range keys {
				keys[i] = uint64(i) * 0x9e3779b97f4a7c15
			}
			block, err := b.Build(kind, keys)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(block.Append(nil, kind, build, 0, n))
		}
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if len(wire) < headBytes+sumBytes {
			return
		}
		copy(wire[8:], "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef")
		binary.LittleEndian.PutUint32(wire[24:], 0)
		block, err := Decode(resum(wire), build, 0)
		if err != nil {
			return
		}
		for key := uint64(1); key != 0; key <<= 1 {
			block.Contains(key)
			block.Contains(^key)
		}
		if block.Bytes() > int64(len(wire)) {
			t.Fatalf("a block of %d bytes needs %d", len(wire), block.Bytes())
		}
	})
}
