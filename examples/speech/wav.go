package main

import (
	"encoding/binary"
	"errors"
)

var errNotWAV = errors.New("expected a RIFF file with a fmt and a data chunk")

// wavSeconds returns the length of the sound in a WAV file.
func wavSeconds(file []byte) (float64, error) {
	if len(file) < 12 || string(file[:4]) != "RIFF" || string(file[8:12]) != "WAVE" {
		return 0, errNotWAV
	}
	var bytesPerSecond uint32
	for rest := file[12:]; len(rest) >= 8; {
		name, size := string(rest[:4]), int64(binary.LittleEndian.Uint32(rest[4:8]))
		body := rest[8:]
		if size > int64(len(body)) {
			return 0, errNotWAV
		}
		switch {
		case name == "fmt " && size >= 16:
			bytesPerSecond = binary.LittleEndian.Uint32(body[8:12])
		case name == "data" && bytesPerSecond > 0:
			return float64(size) / float64(bytesPerSecond), nil
		}
		// Chunks are padded to an even length.
		rest = body[min(size+size%2, int64(len(body))):]
	}
	return 0, errNotWAV
}
