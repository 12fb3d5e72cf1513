// Package tokenfile reads files of hashed tokens, and reads them again within 2 s of a change.
//
// A file is a YAML sequence with one item for each token; only its author's digest is in it. What
// an item may hold is its user's: node tokens (internal/gateway), tokens of callers
// (internal/identity).
//
// At the start a file must be faultless. Later, a bad item is left out and the others hold: a token
// that was removed must not go on working because of a slip in another line. Ready and a metric
// tell of it. A file that cannot be read, or is too large, changes nothing.
package tokenfile
