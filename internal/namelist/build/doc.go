// Package build makes versions of lists: it reads files and other versions, and writes segments and
// filter blocks to a list server. docs/design/namelist.md has words and keys.
//
//   - [Segments] is a list server: it writes, reads, verifies and unlinks what versions have there.
//   - [Builder] makes a version, in steps that its folder's journal records.
//
// # Steps of a build
//
//	parse   the upload's lines go to partition files, cut by the top bits of the hash
//	base    the entries of the base version do, and edits; each seal and the digest are checked
//	sort    each partition is sorted by the hash, and of equal ids the last stays
//	write   segments and filter blocks, in the order of the hash
//	verify  all seals, the digest and all blocks are read back
//
// Before the first write the build knows its count: the number of segments and the budget come from
// it. A base that is damaged ends the build before anything was written.
//
// # Memory and disk
//
// Memory is bounded by the partition buffers (32 MiB), and by the entries of two partitions. The
// folder needs about twice the ids' bytes.
//
// # Failure
//
// A build that ended with an error, or with its process, goes on when Build is called with the same
// build id and folder: parse and base begin again, sort goes on from its last whole partition,
// write from its last whole segment. Another build id begins anew. What a build wrote that will not
// go on is removed by [Segments.Unlink] or [Segments.UnlinkKeys], which leave keys of other builds
// alone.
package build
