// Package class says which jobs fit the same nodes. Jobs of one class have the same service
// and the same [freeslot.Requirement], however their clients spell it.
//
//   - [AppendCanonical] writes a class in the one form that all its spellings share.
//   - [ID] names a class by a short hash of that form. Redis keeps ids, so they never change.
//   - [Hash] and [Same] compare requirements as clients stated them, which is faster.
//
// All functions are pure and safe for concurrent use.
package class
