package chain

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Bucket returns the bucket of a text, from 0 to Buckets-1: the high 64 bits of h * Buckets, where
// h is the XXH3-64, with seed 0, of the salt, a zero byte and the text. A percentage of p has the
// texts whose bucket is less than p * 100. So a greater percentage has the same texts and more.
func Bucket(salt, text string) int {
	var buffer [512]byte // on the stack; longer ones allocate
	return bucketOf(append(append(append(buffer[:0], salt...), 0), text...))
}

func bucketOf(salted []byte) int {
	high, _ := bits.Mul64(xxh3.Hash(salted), Buckets)
	return int(high)
}
