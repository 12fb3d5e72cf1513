// Package class finds the jobs that fit the same nodes. Jobs of one class have the same service and
// the same [freeslot.Requirement], in any spelling of their clients.
//
//   - [AppendCanonical] writes a class in the one form that all its spellings share.
//   - [ID] names a class by a short hash of that form. Redis keeps ids, so they never change.
//   - [Hash] and [Same] compare requirements as clients stated them, which is faster.
//
// All functions are pure and safe for concurrent use. They return no errors: requirements must be
// valid.
package class
