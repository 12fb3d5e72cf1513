package config

import "math/bits"

// The bounds of retention_bytes for one cell, when it is limited.
const (
	minRetentionBytes = 1 << 20
	maxRetentionBytes = 1 << (bits.UintSize - 18) // beyond every memory
)

// validateRetentionBytes: each cell has a share of it, in which the records of a moment have room.
func (r *Replica) validateRetentionBytes(p *Problems) {
	const field = "retention_bytes"
	if p.Has(field) || p.Has("redis.cells") || r.RetentionBytes == 0 {
		return
	}
	if least := minRetentionBytes * max(r.Redis.Cells, 1); r.RetentionBytes < least || r.RetentionBytes > maxRetentionBytes {
		p.Addf(field, "is %d, expected 0 for no limit, or %d (1 MiB for each of the %d cells) to %d", r.RetentionBytes, least, max(r.Redis.Cells, 1), maxRetentionBytes)
	}
}
