package class

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/freeslot/freeslot"
)

// ID returns the id of the class of "service with requirement r": the first 16 hexadecimal digits
// of the SHA-256 of [AppendCanonical]. r must be valid. It is the same in every process and
// release, because Redis keeps it. It costs a few microseconds, so keep it if you need it often.
func ID(service string, r *freeslot.Requirement) string {
	var buf [256]byte
	sum := sha256.Sum256(AppendCanonical(buf[:0], service, r))
	return hex.EncodeToString(sum[:freeslot.ClassIDLength/2])
}
