package filter

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

var build = strings.Repeat("0123456789abcdef", 2)

func random(r *rand.Rand, n int, top uint64) []uint64 {
	keys := make([]uint64, 0, n)
	seen := make(map[uint64]bool, n)
	for len(keys) < n {
		if key := r.Uint64()>>4 | top<<60; !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// No key is missing, in memory and after the wire; false positives are as many as stated.
func TestFilter(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Fuse, Bloom} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			var b Builder
			sizes := []int{0, 1, 2, 3, 4, 5, 7, 10, 31, 100, 1000, 30_000, 300_000, MaxKeys}
			for _, n := range sizes {
				keys := random(r, n, 5)
				block, err := b.Build(kind, keys)
				if err != nil {
					t.Fatal(err)
				}
				wire := block.Append([]byte("before"), kind, build, 7, n)
				got, err := Decode(wire[len("before"):], build, 7)
				if err != nil {
					t.Fatalf("%d keys: %v", n, err)
				}
				for _, key := range keys {
					if !got.Contains(key) {
						t.Fatalf("%d keys: %#x is missing", n, key)
					}
				}
				wrong := 0
				const strangers = 200_000
				for range strangers {
					if got.Contains(r.Uint64()>>4 | 6<<60) {
						wrong++
					}
				}
				limit := map[Kind]float64{Fuse: 0.0045, Bloom: 0.0112}[kind]
				if rate := float64(wrong) / strangers; n >= 1000 && rate > limit || n == 0 && wrong > 0 {
					t.Errorf("%d keys: false positives %.4f, want at most %.4f", n, rate, limit)
				}
				if perKey := float64(got.Bytes()) * 8 / float64(n); n >= 300_000 && perKey > 9.8 {
					t.Errorf("%d keys: %.2f bits a key", n, perKey)
				}
			}
		})
	}
}

// A filter of three million keys, cut into blocks as a build cuts it, has them all.
func TestFilterOfBlocks(t *testing.T) {
	t.Parallel()
	const blockBits = 3
	r := rand.New(rand.NewPCG(5, 6))
	blocks := make([][]uint64, 1<<blockBits)
	for range 3_000_000 {
		key := r.Uint64()
		at := form.Block(key, blockBits)
		blocks[at] = append(blocks[at], key)
	}
	var b Builder
	for at, keys := range blocks {
		slices.Sort(keys)
		keys = slices.Compact(keys)
		block, err := b.Build(Fuse, keys)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(block.Append(nil, Fuse, build, uint32(at), len(keys)), build, uint32(at))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if !got.Contains(key) {
				t.Fatalf("block %d: %#x is missing", at, key)
			}
		}
	}
}

func TestFilterSmall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Fuse, Bloom}).Draw(t, "kind")
		keys := rapid.SliceOfNDistinct(rapid.Uint64(), 0, 200, rapid.ID).Draw(t, "keys")
		var b Builder
		block, err := b.Build(kind, keys)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(block.Append(nil, kind, build, 0, len(keys)), build, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if !got.Contains(key) {
				t.Fatalf("%#x is missing", key)
			}
		}
	})
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	var b Builder
	if _, err := b.Build(Fuse, make([]uint64, MaxKeys+1)); err == nil {
		t.Error("a block of too many keys was built")
	}
	if _, err := b.Build(None, []uint64{1}); err == nil {
		t.Error("a block of no kind was built")
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	var b Builder
	block, err := b.Build(Fuse, random(rand.New(rand.NewPCG(3, 4)), 1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	wire := block.Append(nil, Fuse, build, 3, 1000)
	if _, err := Decode(wire, build, 4); err == nil {
		t.Error("a block of another index was read")
	}
	if _, err := Decode(wire, strings.Repeat("0", 32), 3); err == nil {
		t.Error("a block of another build was read")
	}
	for i := range wire {
		broken := append([]byte(nil), wire...)
		broken[i] ^= 1
		if _, err := Decode(broken, build, 3); err == nil {
			t.Fatalf("a block with a wrong byte %d was read", i)
		}
		if _, err := Decode(wire[:i], build, 3); err == nil {
			t.Fatalf("a block of %d bytes was read", i)
		}
	}
	later := append([]byte(nil), wire...)
	later[4] = 2
	if _, err := Decode(resum(later), build, 3); !errors.Is(err, ErrFormat) {
		t.Errorf("a later format: %v", err)
	}
}
