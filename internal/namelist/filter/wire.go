package filter

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/FastFilter/xorfilter"
	"github.com/bits-and-blooms/bloom/v3"
	"github.com/zeebo/xxh3"
)

// The wire form of a block, numbers in little endian:
//
//	 0  4  "FSLB"
//	 4  1  format, 1
//	 5  1  kind: 1 fuse, 2 bloom
//	 6  2  zero
//	 8 16  build id
//	24  4  index of the block
//	28  4  number of keys
//	32  8  fuse: seed; bloom: zero
//	40  4  fuse: segment length, a power of two; bloom: number of hashes
//	44  4  fuse: segment count; bloom: number of 64-bit words
//	48  n  fuse: (segment count + 2) * segment length fingerprints; bloom: the words. Without keys: nothing
//	 .  8  XXH3-64 of all before, seed 0
const (
	magic      = "FSLB"
	format     = 1
	headBytes  = 48
	sumBytes   = 8
	wireFuse   = 1
	wireBloom  = 2
	maxSegment = 1 << 18 // the library's bound
)

// ErrFormat is returned for a block that is intact, but in a form that this release does not know.
var ErrFormat = errors.New("filter: unknown format of a block")

// Append appends the wire form of the block. build must be 32 hexadecimal digits, otherwise Append
// panics.
func (b *Block) Append(dst []byte, kind Kind, build string, index uint32, keys int) []byte {
	begin := len(dst)
	id, err := hex.DecodeString(build)
	if err != nil || len(id) != 16 {
		panic(fmt.Sprintf("filter: build %q, expected 32 hexadecimal digits", build))
	}
	wireKind := byte(wireFuse)
	if kind == Bloom {
		wireKind = wireBloom
	}
	dst = append(dst, magic...)
	dst = append(dst, format, wireKind, 0, 0)
	dst = append(dst, id...)
	dst = binary.LittleEndian.AppendUint32(dst, index)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(keys))
	switch {
	case keys == 0:
		dst = append(dst, make([]byte, 16)...)
	case kind == Bloom:
		words := b.bloom.BitSet().Words()
		dst = binary.LittleEndian.AppendUint64(dst, 0)
		dst = binary.LittleEndian.AppendUint32(dst, bloomHashes)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(words)))
		for _, word := range words {
			dst = binary.LittleEndian.AppendUint64(dst, word)
		}
	default:
		dst = binary.LittleEndian.AppendUint64(dst, b.fuse.Seed)
		dst = binary.LittleEndian.AppendUint32(dst, b.fuse.SegmentLength)
		dst = binary.LittleEndian.AppendUint32(dst, b.fuse.SegmentCount)
		dst = append(dst, b.fuse.Fingerprints...)
	}
	return binary.LittleEndian.AppendUint64(dst, xxh3.Hash(dst[begin:]))
}

// Decode decodes a block of this build and index. It keeps no reference to wire, and allocates no
// more than wire is long. Errors: ErrFormat, or what is wrong with the block.
func Decode(wire []byte, build string, index uint32) (*Block, error) {
	if len(wire) < headBytes+sumBytes || string(wire[:4]) != magic {
		return nil, errors.New("filter: not a block")
	}
	body, u32 := wire[:len(wire)-sumBytes], func(at int) uint32 { return binary.LittleEndian.Uint32(wire[at:]) }
	if xxh3.Hash(body) != binary.LittleEndian.Uint64(wire[len(body):]) {
		return nil, errors.New("filter: a block's checksum differs")
	}
	if wire[4] != format || wire[5] != wireFuse && wire[5] != wireBloom {
		return nil, fmt.Errorf("%w: format %d, kind %d", ErrFormat, wire[4], wire[5])
	}
	if got := hex.EncodeToString(wire[8:24]); got != build || u32(24) != index {
		return nil, fmt.Errorf("filter: block %d of build %s, expected %d of %s", u32(24), got, index, build)
	}
	keys, length, count, payload := u32(28), u32(40), u32(44), body[headBytes:]
	switch {
	case keys > MaxKeys:
		return nil, fmt.Errorf("filter: %d keys in a block, expected at most %d", keys, MaxKeys)
	case keys == 0:
		if len(payload) > 0 {
			return nil, errors.New("filter: a block without keys has content")
		}
		return &Block{}, nil
	case wire[5] == wireBloom:
		if length != bloomHashes || int(count) != bloomWords(int(keys)) || len(payload) != 8*int(count) {
			return nil, errors.New("filter: a block's parameters do not fit its size")
		}
		words := make([]uint64, count)
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(payload[8*i:])
		}
		return &Block{bloom: bloom.FromWithM(words, uint(count)*64, bloomHashes)}, nil
	}
	// Contains relies on these bounds.
	if bits.OnesCount32(length) != 1 || length > maxSegment || count == 0 ||
		uint64(count)*uint64(length) > math.MaxUint32 ||
		uint64(len(payload)) != (uint64(count)+2)*uint64(length) {
		return nil, errors.New("filter: a block's parameters do not fit its size")
	}
	return &Block{fuse: xorfilter.BinaryFuse[uint8]{
		Seed: binary.LittleEndian.Uint64(wire[32:]), SegmentLength: length, SegmentLengthMask: length - 1,
		SegmentCount: count, SegmentCountLength: count * length, Fingerprints: append([]uint8(nil), payload...),
	}}, nil
}
