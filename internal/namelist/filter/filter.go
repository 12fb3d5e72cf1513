// Package filter is the prefilter of a version. It says "no" for most ids that a version does not
// have, and never for an id that it has. The top bits of the ids' hashes divide a filter into
// blocks, so that building and loading one need little memory.
package filter

import (
	"errors"
	"fmt"
	"math"

	"github.com/FastFilter/xorfilter"
	"github.com/bits-and-blooms/bloom/v3"
)

// Kind is the kind of a filter.
type Kind string

// The kinds.
const (
	Fuse  Kind = "fuse"  // binary fuse, 8 bits: 0.4 % false positives, about 9.2 bits a key
	Bloom Kind = "bloom" // 1 % false positives, 9.7 bits a key
	None  Kind = "none"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Fuse, Bloom, None} }

const (
	// MaxKeys is the largest number of keys in a block.
	MaxKeys = 1 << 19
	// MaxBlockBits bounds the number of blocks, to 2^MaxBlockBits.
	MaxBlockBits = 14
)

const (
	bloomHashes     = 7
	bloomBitsPerKey = 9.7
)

// Block is one block of a filter. It is immutable, and safe for concurrent use. The zero value has
// no keys.
type Block struct {
	fuse  xorfilter.BinaryFuse[uint8]
	bloom *bloom.BloomFilter
}

// Contains reports whether the block may have the key; false is certain.
func (b *Block) Contains(key uint64) bool {
	switch {
	case len(b.fuse.Fingerprints) > 0:
		return b.fuse.Contains(key)
	case b.bloom != nil:
		at := locations(key)
		return b.bloom.TestLocations(at[:])
	default:
		return false
	}
}

// Bytes returns the memory that the block needs.
func (b *Block) Bytes() int64 {
	n := int64(len(b.fuse.Fingerprints))
	if b.bloom != nil {
		n += int64(b.bloom.Cap() / 8)
	}
	return n
}

// locations returns where a key is in a Bloom filter: double hashing after Kirsch and Mitzenmacher,
// "Less Hashing, Same Performance" (2006), by the halves of the mixed key.
func locations(key uint64) (at [bloomHashes]uint64) {
	// Mix, because the keys of a block share their top bits. The constants are MurmurHash3's
	// fmix64.
	key ^= key >> 33
	key *= 0xff51afd7ed558ccd
	key ^= key >> 33
	key *= 0xc4ceb9fe1a85ec53
	key ^= key >> 33
	step := key>>32 | 1
	for i := range at {
		at[i] = key & math.MaxUint32
		key += step
	}
	return at
}

// Builder makes blocks, and keeps its memory between them. Its zero value is ready. It is not safe
// for concurrent use.
type Builder struct {
	fuse xorfilter.BinaryFuseBuilder
	keys []uint64
}

// Build makes a block of the keys, which must be distinct, and tests that the block has every key.
// kind is Fuse or Bloom. The block is valid until the next call; Append writes its wire form.
// Errors: too many keys; a block without some of its keys, which is a defect of a library.
func (b *Builder) Build(kind Kind, keys []uint64) (*Block, error) {
	if len(keys) > MaxKeys {
		return nil, fmt.Errorf("filter: %d keys in a block, expected at most %d", len(keys), MaxKeys)
	}
	block := &Block{}
	if len(keys) == 0 {
		return block, nil
	}
	switch kind {
	case Fuse:
		b.keys = append(b.keys[:0], keys...) // the library may change their order
		built, err := xorfilter.BuildBinaryFuse[uint8](&b.fuse, b.keys)
		if err != nil {
			return nil, fmt.Errorf("filter: build a block of %d keys: %w", len(keys), err)
		}
		block.fuse = built
	case Bloom:
		words := bloomWords(len(keys))
		block.bloom = bloom.FromWithM(make([]uint64, words), uint(words)*64, bloomHashes)
		set := block.bloom.BitSet()
		for _, key := range keys {
			for _, at := range locations(key) {
				set.Set(uint(at % uint64(words*64)))
			}
		}
	default:
		return nil, fmt.Errorf("filter: kind %q, expected %q or %q", kind, Fuse, Bloom)
	}
	for _, key := range keys {
		if !block.Contains(key) {
			return nil, errors.New("filter: a block does not have all its keys")
		}
	}
	return block, nil
}

func bloomWords(keys int) int { return int(math.Ceil(float64(keys) * bloomBitsPerKey / 64)) }
