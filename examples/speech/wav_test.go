package main

import (
	"encoding/binary"
	"slices"
	"testing"
)

func chunk(name string, body []byte) []byte {
	return slices.Concat([]byte(name), binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body, make([]byte, len(body)%2))
}

func riff(chunks ...[]byte) []byte {
	return chunk("RIFF", slices.Concat([]byte("WAVE"), slices.Concat(chunks...)))
}

func format(bytesPerSecond uint32) []byte {
	body := make([]byte, 16)
	binary.LittleEndian.PutUint32(body[8:], bytesPerSecond)
	return chunk("fmt ", body)
}

func TestWAVSeconds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file    []byte
		seconds float64
		bad     bool
	}{
		"plain":             {file: riff(format(44100), chunk("data", make([]byte, 22050))), seconds: 0.5},
		"odd chunk between": {file: riff(format(100), chunk("LIST", []byte("abc")), chunk("data", make([]byte, 100))), seconds: 1},
		"empty":             {bad: true},
		"no data":           {file: riff(format(44100)), bad: true},
		"data first":        {file: riff(chunk("data", make([]byte, 10)), format(44100)), bad: true},
		"no rate":           {file: riff(format(0), chunk("data", make([]byte, 10))), bad: true},
		"cut off":           {file: riff(format(44100), chunk("data", make([]byte, 10)))[:48], bad: true},
		"another file":      {file: []byte("OggS and so on and so on"), bad: true},
	} {
		got, err := wavSeconds(c.file)
		if got != c.seconds || (err != nil) != c.bad {
			t.Errorf("%s: %v seconds, error %v", name, got, err)
		}
	}
}
