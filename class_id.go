package freeslot

import (
	"crypto/sha256"
	"encoding/hex"
)

// ClassIDLength is the length of a class id, in bytes.
const ClassIDLength = 16

// ClassID names the class of "service with requirement r", which must be valid: the
// first 16 hexadecimal digits of the SHA-256 of [Requirement.AppendClass]. It is the
// same in every process and release, so that it can be kept in Redis. It costs a few
// microseconds; where a class is asked for often, keep it.
func ClassID(service string, r *Requirement) string {
	var buf [256]byte
	sum := sha256.Sum256(r.AppendClass(buf[:0], service))
	return hex.EncodeToString(sum[:ClassIDLength/2])
}
