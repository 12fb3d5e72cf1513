// Package chain decides for a subject by an ordered document of rules: the first rule that matches
// decides. It has no I/O and no clock of its own. Lists are asked by an interface.
//
//   - Parse reads a document and names every bad field; Encode writes the canonical form.
//   - Compile makes a Chain of a document; Evaluate decides for a subject.
//   - Bucket is the hash of percentages. docs/design/namelist.md has its test vectors.
//
// Each condition is true, false or unknown, and unknown is never taken for false: each rule says
// what its unknown does.
package chain
