package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
)

// appendID appends the i-th id: 16 random hex characters, other ones for each i. Those from 0 on
// are members, and those behind them strangers.
func appendID(dst []byte, i int) []byte {
	// SplitMix64, which maps 64 bits one to one.
	z := uint64(i) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	var raw [8]byte
	for k := range raw {
		raw[k] = byte(z >> (8 * k))
	}
	return hex.AppendEncode(dst, raw[:])
}

const idBytes = 16

func idOf(i int) string { return string(appendID(nil, i)) }

// idsOf are the ids of these numbers, in one piece of memory.
func idsOf(numbers []int) []string {
	text := make([]byte, 0, idBytes*len(numbers))
	for _, i := range numbers {
		text = appendID(text, i)
	}
	all, ids := string(text), make([]string, len(numbers))
	for i := range ids {
		ids[i] = all[i*idBytes : (i+1)*idBytes]
	}
	return ids
}

// shuffled are the numbers from first on, in random order.
func shuffled(first, n int) []int {
	out := rand.New(rand.NewPCG(uint64(first), 2)).Perm(n)
	for i := range out {
		out[i] += first
	}
	return out
}

// dirtyEvery is how many lines of a file have one that is refused.
const dirtyEvery = 100

// writeFile writes a file with the first ids, a line each. With dirty each hundredth line is one
// that cannot be read, beside them.
func writeFile(path string, ids int, dirty bool) (rejected int, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	out, line := bufio.NewWriterSize(f, 1<<20), make([]byte, 0, 2*idBytes)
	for i := range ids {
		if dirty && i%(dirtyEvery-1) == dirtyEvery-2 {
			rejected++
			_, _ = out.Write(append(appendID(line, i), ",someday\n"...)) // Flush has the error
		}
		_, _ = out.Write(append(appendID(line, i), '\n'))
	}
	return rejected, errors.Join(out.Flush(), f.Close())
}
