// Package autoscale runs an operator's command when a pool should have another number of nodes
// (autoscale.exec).
//
// Each replica follows the demand of the pools (package demand), and decides alone what to do from
// the proposal, the nodes that are there and the number in the last run (decide.go). If the command
// is to run, the replicas compete for the pool's turn: a key in Redis that expires after the
// cool-down. The one that sets it runs the command. The command gets the whole number of nodes, never
// a difference, so a repetition does no harm.
package autoscale
