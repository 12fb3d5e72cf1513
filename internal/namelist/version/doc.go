// Package version makes versions of lists: it reads files and other versions, and writes segments and
// filter blocks to a list server. docs/design/namelist.md describes words and keys.
//
//   - [Segments] is a list server: it writes, reads, verifies and unlinks what versions have there.
//   - [Builder] makes a version, in steps that its folder's journal records.
//
// # Steps of a build
//
//	parse   writes the upload's lines to partition files, divided by the top bits of the hash
//	base    does the same with the entries of the base version and the edits; checks each seal and the digest
//	sort    sorts each partition by the hash, and keeps the last of equal ids
//	write   writes segments and filter blocks, in the order of the hash
//	verify  reads back all seals, the digest and all blocks
//
// The build knows its count before the first write: the number of segments and the budget depend on
// it. A damaged base ends the build before anything is written.
//
// # Memory and disk
//
// Memory is bounded by the partition buffers (32 MiB), and by the entries of two partitions. The
// folder needs about twice the ids' bytes.
//
// # Failure
//
// If a build ended with an error, or with its process, call Build with the same build id and folder
// to continue it: parse and base begin again, sort continues from its last complete partition,
// write from its last complete segment. Another build id begins anew. [Segments.Unlink] or
// [Segments.UnlinkKeys] removes what an abandoned build wrote, and leaves keys of other builds
// alone.
package version
